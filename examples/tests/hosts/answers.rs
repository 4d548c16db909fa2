//! Answers of endpoints that come slowly, in pieces, broken, or not at all; clients that are slow or go.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::fake::{Asked, CHUNKED, Endpoint, Front, Wire, chunk, dc, header, parsed, request};
use crate::support::ports;

/// Longer than the router's patience.
const TOO_LONG: Duration = Duration::from_millis(1500);

#[tokio::test]
async fn each_piece_reaches_the_client_before_the_next_is_there() {
    let mut endpoint = Endpoint::start().await;
    let front = Front::start(&[dc(1, endpoint.port)], "").await;
    let body = r#"{"prompt" : [1,2], "n":2, "stream":true, "future":{"field":[null]}}"#;
    let mut client = front.ask(body).await;
    let mut asked = endpoint.asked().await;
    assert!(asked.head.starts_with("POST /v1/completions HTTP/1.1\r\n"), "{}", asked.head);
    assert_eq!(asked.body, body, "as it came");
    asked.wire.say(CHUNKED).await;
    for piece in ["data: one\n\n", "data: two\n\n", "data: [DONE]\n\n"] {
        asked.wire.say(&chunk(piece)).await;
        let heard = client.hear(piece).await;
        if piece.contains("one") {
            assert!(heard.starts_with("HTTP/1.1 200 OK\r\n"), "{heard}");
            assert_eq!(header(&heard, "content-type"), Some("text/event-stream"));
            assert_eq!(header(&heard, "x-ckf-dc"), Some("1"));
        }
    }
    asked.wire.say("0\r\n\r\n").await;
    assert!(client.rest().await.ends_with("0\r\n\r\n"), "a clean end");
    assert_eq!((front.requests("broken").await, front.requests("abandoned").await), (0, 0));
}

/// An answer in the way of HTTP/1.0 ends with its connection. It is passed on in the same way, and
/// counted: nobody can tell whether it was whole.
#[tokio::test]
async fn an_answer_that_ends_with_its_connection_is_passed_on_and_counted() {
    let mut endpoint = Endpoint::start().await;
    let front = Front::start(&[dc(1, endpoint.port)], "").await;
    for (version, unframed) in [("1.0", 1), ("1.1", 2)] {
        let mut client = front.ask(r#"{"prompt":[1]}"#).await;
        let mut asked = endpoint.asked().await;
        asked.wire.say(&format!("HTTP/{version} 200 OK\r\n\r\nall")).await;
        let heard = client.hear("all").await;
        assert!(heard.starts_with("HTTP/1.0 200 OK\r\n"), "{heard}");
        drop(asked);
        assert_eq!(client.rest().await, "");
        assert_eq!(front.requests("unframed").await, unframed);
    }
    let mut client = front.ask(r#"{"prompt":[1]}"#).await;
    endpoint.asked().await.answer("200 OK", "all").await;
    client.hear("all").await;
    assert_eq!((front.requests("unframed").await, front.requests("broken").await), (2, 0));
}

/// Nobody reads the body of such an answer, and still nobody has gone away.
#[tokio::test]
async fn an_answer_without_a_body_is_whole() {
    let mut endpoint = Endpoint::start().await;
    let front = Front::start(&[dc(1, endpoint.port)], "").await;
    for status in ["204 No Content", "304 Not Modified", "200 OK\r\ncontent-length: 0"] {
        let mut client = front.ask(r#"{"prompt":[1]}"#).await;
        endpoint.asked().await.wire.say(&format!("HTTP/1.1 {status}\r\n\r\n")).await;
        let heard = client.hear("\r\n\r\n").await;
        assert!(heard.contains(&status[..3]), "{heard}");
    }
    assert_eq!((front.requests("broken").await, front.requests("abandoned").await), (0, 0));
}

/// Of an answer that says both, the chunks tell the end.
#[tokio::test]
async fn a_length_beside_chunks_is_not_passed_on() {
    let mut endpoint = Endpoint::start().await;
    let front = Front::start(&[dc(1, endpoint.port)], "").await;
    let mut client = front.ask(r#"{"prompt":[1]}"#).await;
    let mut asked = endpoint.asked().await;
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 1000\r\n\r\n";
    asked.wire.say(&format!("{head}{}0\r\n\r\n", chunk("all"))).await;
    let heard = client.hear("all").await;
    assert_eq!(header(&heard, "content-length"), None, "{heard}");
    assert!(client.rest().await.ends_with("0\r\n\r\n"), "a clean end");
}

/// What an endpoint does after it has begun an answer, none of which is its end.
#[tokio::test]
async fn an_answer_that_breaks_off_is_no_clean_end_and_not_tried_again() {
    type Break = (&'static str, &'static str, bool);
    let length = "HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nfirst";
    let kinds: [Break; 5] = [
        ("chunked", "5\r\nfirst\r\n", true),
        ("within_a_chunk", "ff\r\nfirst", true),
        ("garbage", "5\r\nfirst\r\nnonsense\r\n", false),
        ("silent", "5\r\nfirst\r\n", false),
        ("length", length, true),
    ];
    let (mut first, mut second) = (Endpoint::start().await, Endpoint::start().await);
    let dcs = kinds.map(|(kind, ..)| {
        [first.port, second.port].map(|port| {
            format!(
                "{},pool={kind},cost={}",
                dc(u64::from(port), port),
                port - first.port.min(port)
            )
        })
    });
    let front = Front::start(&dcs.concat(), "").await;
    for (number, (kind, said, close)) in kinds.into_iter().enumerate() {
        let mut client = front.ask(&format!(r#"{{"model":"{kind}","prompt":[1]}}"#)).await;
        // Which of the two is preferred is of no interest here.
        let (mut asked, other) = tokio::select! {
            asked = first.asked() => (asked, &mut second),
            asked = second.asked() => (asked, &mut first),
        };
        if !said.starts_with("HTTP") {
            asked.wire.say(CHUNKED).await;
        }
        asked.wire.say(said).await;
        client.hear("first").await;
        let kept = (!close).then_some(asked);
        let rest = client.rest().await;
        assert!(!rest.contains("0\r\n\r\n") && rest.len() < 900, "{kind}: {rest:?}");
        assert_eq!(front.requests("broken").await, number as u64 + 1, "{kind}");
        assert!(other.is_idle(), "{kind}: tried again");
        drop(kept);
    }
    assert_eq!(front.requests("failover").await + front.requests("failed").await, 0);
    front.until_idle().await;
}

/// An endpoint that fails in one way before it has begun an answer.
async fn fails(how: &'static str) -> u16 {
    if how == "refuses" {
        let [nobody] = ports();
        return nobody;
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let said = match how {
                    "closes" => return,
                    "garbage" => "nonsense\r\n\r\n",
                    "status_500" => "HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n",
                    "status_503" => "HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n",
                    "status_429" => "HTTP/1.1 429 No\r\ncontent-length: 0\r\n\r\n",
                    "status_101" => "HTTP/1.1 101 Odd\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n",
                    "no_first_piece" => CHUNKED,
                    "cut_before_a_piece" => "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n",
                    "half_a_head" => "HTTP/1.1 200 OK\r\ncontent-",
                    _ => "",
                };
                let _ = stream.read(&mut [0; 4096]).await;
                let _ = stream.write_all(said.as_bytes()).await;
                if ["silent", "no_first_piece"].contains(&how) {
                    tokio::time::sleep(TOO_LONG).await;
                }
            });
        }
    });
    port
}

const FAILURES: [&str; 11] = [
    "refuses",
    "closes",
    "garbage",
    "status_500",
    "status_503",
    "status_429",
    "status_101",
    "no_first_piece",
    "cut_before_a_piece",
    "half_a_head",
    "silent",
];

#[tokio::test]
async fn what_fails_before_the_first_piece_is_tried_elsewhere() {
    let mut good = Endpoint::start().await;
    let mut dcs = Vec::new();
    for how in FAILURES {
        dcs.push(format!("{},pool={how}", dc(1, fails(how).await)));
        dcs.push(format!("{},pool={how},cost=1000", dc(2, good.port)));
        // And with nobody else to ask.
        dcs.push(format!("{},pool=only_{how}", dc(1, fails(how).await)));
    }
    let front = Front::start(&dcs, "").await;
    for (number, how) in FAILURES.into_iter().enumerate() {
        let mut client = front.ask(&format!(r#"{{"model":"{how}","prompt":[1]}}"#)).await;
        good.asked().await.answer("200 OK", "answer").await;
        let answer = client.rest().await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("answer"), "{answer}");
        assert_eq!(header(&answer, "x-ckf-dc"), Some("2"), "{how}");
        assert_eq!(front.requests("failover").await, number as u64 + 1, "{how}");
    }
    assert_eq!(front.requests("failed").await, 0);
    for (number, how) in FAILURES.into_iter().enumerate() {
        let body = format!(r#"{{"model":"only_{how}","prompt":[1]}}"#);
        let answer = front.ask(&body).await.rest().await;
        let (status, error) = parsed(&answer);
        let busy = ["status_503", "status_429"].contains(&how);
        let expected = if busy { (503, "all_busy") } else { (502, "no_endpoint") };
        let error = &error["error"];
        assert_eq!((status, error["code"].as_str()), (expected.0, Some(expected.1)), "{how}");
        assert_eq!(error["type"], "server_error");
        assert_eq!(header(&answer, "retry-after").is_some(), busy);
        assert_eq!(front.requests("failed").await, number as u64 + 1, "{how}");
    }
    front.until_idle().await;
}

/// A request that breaks engines goes to three of them; those that never got it do not count.
#[tokio::test]
async fn a_request_that_breaks_engines_does_not_go_through_all() {
    let mut last = Endpoint::start().await;
    let mut dcs = vec![];
    for (number, how) in
        ["refuses", "closes", "status_429", "status_500", "refuses"].iter().enumerate()
    {
        dcs.push(format!("{},cost={number}000", dc(number as u64, fails(how).await)));
    }
    dcs.push(format!("{},cost=90000", dc(90, last.port)));
    let front = Front::start(&dcs, "").await;
    let mut client = front.ask(r#"{"prompt":[1]}"#).await;
    last.asked().await.answer("200 OK", "fine").await;
    assert!(
        client.rest().await.ends_with("fine"),
        "two broke, and three had nothing to do with it"
    );
    assert_eq!(front.requests("failover").await, 5);

    dcs.insert(0, format!("{},cost=1", dc(91, fails("half_a_head").await)));
    let front = Front::start(&dcs, "").await;
    let (status, error) = parsed(&front.ask(r#"{"prompt":[1]}"#).await.rest().await);
    assert_eq!((status, &error["error"]["code"]), (502, &"no_endpoint".into()));
    assert_eq!((front.requests("failover").await, front.requests("failed").await), (5, 1));
    assert!(last.is_idle());
}

/// What the endpoint says about the request itself is the answer.
#[tokio::test]
async fn a_refusal_of_the_request_is_passed_on() {
    let mut endpoint = Endpoint::start().await;
    let front = Front::start(&[dc(1, endpoint.port)], "").await;
    for status in ["400 Bad Request", "404 Not Found", "422 No", "204 No Content"] {
        let mut client = front.ask(r#"{"prompt":[1]}"#).await;
        let body = if status.starts_with("204") { "" } else { r#"{"error":1}"# };
        endpoint.asked().await.answer(status, body).await;
        let answer = client.rest().await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {}", &status[..3])), "{answer}");
        assert!(answer.ends_with(body));
    }
    assert_eq!(front.requests("failover").await, 0);
}

#[tokio::test]
async fn end_to_end_headers_pass_and_others_do_not() {
    let mut endpoint = Endpoint::start().await;
    let front = Front::start(&[dc(1, endpoint.port)], "").await;
    let mut client = Wire::to(front.port).await;
    let headers = "Authorization: Bearer secret\r\nX-Request-Id: id-7\r\naccept: text/event-stream\r\n\
                   traceparent: 00-1\r\nProxy-Authorization: Basic secret\r\nKeep-Alive: timeout=9\r\n\
                   x-mine: 1\r\nTE: trailers\r\ncontent-type: text/plain\r\nconnection: close, X-Mine\r\n";
    client.say(&request("POST", "/v1/completions", headers, r#"{"prompt":[1]}"#)).await;
    let Asked { head, mut wire, .. } = endpoint.asked().await;
    for (name, value) in [
        ("authorization", Some("Bearer secret")),
        ("x-request-id", Some("id-7")),
        ("accept", Some("text/event-stream")),
        ("traceparent", Some("00-1")),
        ("content-type", Some("application/json")),
        ("content-length", Some("14")),
        ("proxy-authorization", None),
        ("keep-alive", None),
        ("x-mine", None),
        ("te", None),
        ("connection", None),
    ] {
        assert_eq!(header(&head, name), value, "{name}: {head}");
    }
    assert_ne!(header(&head, "host"), Some("h"));
    wire.say(
        "HTTP/1.1 200 OK\r\nx-request-id: id-7\r\ncontent-length: 2\r\nx-ckf-dc: 9\r\n\
              connection: x-hop\r\nx-hop: 1\r\nkeep-alive: timeout=9\r\n\r\nok",
    )
    .await;
    let answer = client.rest().await;
    for (name, value) in [
        ("x-request-id", Some("id-7")),
        ("content-length", Some("2")),
        ("x-ckf-dc", Some("1")),
        ("x-hop", None),
        ("keep-alive", None),
    ] {
        assert_eq!(header(&answer, name), value, "{name}: {answer}");
    }
}

/// Before the head of an answer, and between its pieces.
#[tokio::test]
async fn a_client_that_goes_away_frees_its_endpoint() {
    let mut endpoint = Endpoint::start().await;
    let front = Front::start(&[dc(1, endpoint.port)], "--patience-ms 60000").await;
    for number in 0..2 {
        let client = &mut front.ask(r#"{"prompt":[1],"stream":true}"#).await;
        let mut asked = endpoint.asked().await;
        if number == 1 {
            asked.wire.say(CHUNKED).await;
            asked.wire.say(&chunk("first")).await;
            client.hear("first").await;
        }
        client.stream.shutdown().await.unwrap();
        // The end, long before anybody's patience.
        assert_eq!(asked.wire.rest().await, "", "{number}");
        front.until_idle().await;
        assert_eq!(front.requests("abandoned").await, number + 1);
    }
    assert_eq!(front.requests("failover").await, 0);
}

/// A client that does not read makes the endpoint wait, and the router hold little.
#[tokio::test]
async fn a_slow_client_holds_its_endpoint_back() {
    const ALL: usize = 64 << 20;
    let mut endpoint = Endpoint::start().await;
    let front = Front::start(&[dc(1, endpoint.port)], "--patience-ms 60000").await;
    let mut client = front.ask(r#"{"prompt":[1]}"#).await;
    let mut asked = endpoint.asked().await;
    let before = front.process.most_memory();
    asked.wire.say(&format!("HTTP/1.1 200 OK\r\ncontent-length: {ALL}\r\n\r\n")).await;
    let mut sent = 0;
    let piece = [b'x'; 1 << 16];
    while let Ok(len) =
        tokio::time::timeout(Duration::from_secs(1), asked.wire.stream.write(&piece)).await
    {
        sent += len.unwrap();
        assert!(sent < ALL, "the router takes all of it");
    }
    let grown = front.process.most_memory() - before;
    assert!(grown < 8 << 20, "{grown} bytes more");
    let rest = tokio::spawn(async move {
        while sent < ALL {
            let len = asked.wire.stream.write(&piece[..piece.len().min(ALL - sent)]).await;
            sent += len.unwrap();
        }
    });
    client.hear("\r\n\r\n").await;
    assert_eq!(client.rest().await.len(), ALL);
    rest.await.unwrap();
}

/// An endpoint that fails is tried last for two seconds, then four, until it answers again.
#[tokio::test]
async fn an_endpoint_that_goes_on_failing_is_left_alone_longer() {
    let (mut bad, mut good) = (Endpoint::start().await, Endpoint::start().await);
    let dcs = [dc(1, bad.port), format!("{},cost=1000", dc(2, good.port))];
    let front = Front::start(&dcs, "").await;
    // Whether the first one is asked before the other, and what it says.
    let mut ask = async |says: Option<&str>| {
        let mut client = front.ask(r#"{"prompt":[1]}"#).await;
        if let Some(status) = says {
            bad.asked().await.answer(status, "").await;
        }
        if says != Some("200 OK") {
            good.asked().await.answer("200 OK", "").await;
        }
        assert!(client.rest().await.starts_with("HTTP/1.1 200"));
        assert!(bad.is_idle());
    };
    let wait = async |millis| tokio::time::sleep(Duration::from_millis(millis)).await;
    ask(Some("500 No")).await;
    ask(None).await;
    wait(2100).await;
    ask(Some("500 No")).await;
    wait(2100).await;
    ask(None).await;
    wait(2000).await;
    ask(Some("200 OK")).await;
    ask(Some("500 No")).await;
    wait(2100).await;
    ask(Some("200 OK")).await;
}

/// Without a ready lane, requests go where fewest are under way.
#[tokio::test]
async fn without_a_ready_lane_load_decides() {
    let (mut a, mut b) = (Endpoint::start().await, Endpoint::start().await);
    let dcs = [dc(1, a.port), format!("{},cost=1", dc(2, b.port))];
    let front = Front::start(&dcs, "").await;
    let ready = front.watch.get(front.admin, "/readyz").await;
    assert!(ready.is_none(), "no lane is ready: {ready:?}");
    let prompt = r#"{"prompt":[1,2,3]}"#;
    let mut first = front.ask(prompt).await;
    let held = a.asked().await;
    let route = serde_json::json!({ "prompt": [1, 2, 3] });
    let route = front.watch.post(front.port, "/v1/route", &route).await.unwrap();
    assert_eq!((&route["to"]["dc"], &route["why"]), (&2.into(), &"load and cost".into()));
    assert_eq!(route["to"]["name"], "2");
    let mut second = front.ask(prompt).await;
    b.asked().await.answer("200 OK", "b").await;
    assert!(second.rest().await.ends_with('b'));
    held.answer("200 OK", "a").await;
    assert!(first.rest().await.ends_with('a'));
    // Nobody has anything to do: the cheaper one again.
    front.until_idle().await;
    let mut third = front.ask(prompt).await;
    a.asked().await.answer("200 OK", "a").await;
    assert!(third.rest().await.ends_with('a'));
    assert_eq!((front.requests("by_load").await, front.requests("by_depth").await), (3, 0));
}
