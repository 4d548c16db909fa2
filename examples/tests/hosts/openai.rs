//! What clients of OpenAI's interface may get wrong, and how they are told.

use crate::fake::{Endpoint, Front, Wire, dc, header, parsed, request};
use crate::support::args;

#[tokio::test]
async fn mistakes_are_told_in_openai_s_words_and_go_no_further() {
    let mut endpoint = Endpoint::start().await;
    let front = Front::start(&[dc(1, endpoint.port)], "--model the-model").await;
    let completions = "/v1/completions";
    let long = format!(r#"{{"prompt":[1],"user":"{}"}}"#, "x".repeat(4 << 20));
    type Row<'a> = (&'a str, &'a str, &'a str, &'a str, u16, &'a str, Option<&'a str>);
    let rows: &[Row<'_>] = &[
        ("POST", completions, "", "", 400, "bad_json", None),
        ("POST", completions, "", "nonsense", 400, "bad_json", None),
        ("POST", completions, "", "[1,2]", 400, "bad_json", None),
        ("POST", completions, "", r#"{"prompt":[1]"#, 400, "bad_json", None),
        ("POST", completions, "", r#"{"prompt":[1],"model":7}"#, 400, "bad_json", None),
        ("POST", completions, "", "{}", 400, "missing_prompt", Some("prompt")),
        (
            "POST",
            completions,
            "",
            r#"{"prompt":"Once upon"}"#,
            400,
            "text_prompt_unsupported",
            Some("prompt"),
        ),
        (
            "POST",
            completions,
            "",
            r#"{"prompt":["a","b"]}"#,
            400,
            "text_prompt_unsupported",
            Some("prompt"),
        ),
        ("POST", completions, "", r#"{"prompt":[]}"#, 400, "empty_prompt", Some("prompt")),
        ("POST", completions, "", r#"{"prompt":[-1]}"#, 400, "bad_prompt", Some("prompt")),
        (
            "POST",
            completions,
            "",
            r#"{"prompt":[1],"model":"other"}"#,
            404,
            "model_not_found",
            Some("model"),
        ),
        (
            "POST",
            completions,
            "",
            r#"{"prompt":[1],"model":""}"#,
            404,
            "model_not_found",
            Some("model"),
        ),
        ("POST", completions, "content-encoding: gzip\r\n", "x", 415, "bad_body", None),
        ("POST", completions, "", &long, 413, "bad_body", None),
        (
            "POST",
            "/v1/route",
            "",
            r#"{"prompt":""}"#,
            400,
            "text_prompt_unsupported",
            Some("prompt"),
        ),
        ("GET", completions, "", "", 405, "method_not_allowed", None),
        ("PUT", "/v1/route", "", "{}", 405, "method_not_allowed", None),
        ("DELETE", completions, "", "", 405, "method_not_allowed", None),
        ("POST", "/v1/chat/completions", "", "{}", 404, "unknown_url", None),
        ("GET", "/", "", "", 404, "unknown_url", None),
        ("POST", "/v1/completions/", "", r#"{"prompt":[1]}"#, 404, "unknown_url", None),
    ];
    let mut bad = 0;
    for (method, path, headers, body, status, code, param) in rows {
        let case = format!("{method} {path} {headers}{body:.60}");
        let mut wire = Wire::to(front.port).await;
        let headers = format!("connection: close\r\n{headers}");
        wire.say(&request(method, path, &headers, body)).await;
        let answer = wire.rest().await;
        let (found, error) = parsed(&answer);
        assert_eq!((found, error["error"]["code"].as_str()), (*status, Some(*code)), "{case}");
        let error = error["error"].as_object().unwrap();
        assert_eq!(error.keys().collect::<Vec<_>>(), ["code", "message", "param", "type"]);
        assert_eq!(error["type"], "invalid_request_error", "{case}");
        assert_eq!(error["param"].as_str(), *param, "{case}");
        let message = error["message"].as_str().unwrap();
        assert!((10..300).contains(&message.len()), "{case}: {message}");
        assert_eq!(header(&answer, "content-type"), Some("application/json"));
        if *status == 405 {
            assert_eq!(header(&answer, "allow"), Some("POST"), "{case}");
        }
        bad += u64::from(*status != 405 && *code != "unknown_url");
    }
    assert!(endpoint.is_idle());
    let counted = front.watch.metric(front.admin, "ckf_bad_requests_total", &[]).await;
    assert_eq!(counted as u64, bad);
}

#[tokio::test]
async fn what_is_right_goes_on_as_it_is() {
    let mut endpoint = Endpoint::start().await;
    let front = Front::start(&[dc(1, endpoint.port)], "--model the-model --pool the-pool").await;
    for body in [
        r#"{"prompt":[1]}"#,
        r#"{"prompt":[[1]]}"#,
        r#"{"prompt":[[1,2],[3,4]],"n":3}"#,
        r#"{"prompt":[1],"model":null}"#,
        r#"{"prompt":[1],"model":"the-model","stream":true,"stream_options":{"include_usage":true}}"#,
        r#"{"model":"the-pool","max_tokens":1,"prompt":[4294967295],"logit_bias":{"1":-100}}"#,
    ] {
        let mut client = front.ask(body).await;
        let asked = endpoint.asked().await;
        assert_eq!(asked.body, body);
        asked.answer("200 OK", "fine").await;
        assert!(client.rest().await.ends_with("fine"), "{body}");
    }
    // One connection for several requests, and a body in chunks.
    let mut client = Wire::to(front.port).await;
    for _ in 0..3 {
        let head = "POST /v1/completions HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n";
        client.say(&format!("{head}6\r\n{{\"prom\r\n9\r\npt\":[12]}}\r\n0\r\n\r\n")).await;
        let asked = endpoint.asked().await;
        assert_eq!(asked.body, r#"{"prompt":[12]}"#);
        asked.answer("200 OK", "fine").await;
        client.hear("fine").await;
    }
}

/// The prompts of one request go to one place together: their blocks count together.
#[tokio::test]
async fn several_prompts_count_together() {
    use crate::site::{Site, prompt};
    let site = Site::new(1);
    let _engine = site.engines[0].start().await;
    let _relay = site.relay("").await;
    let _router = site.router().await;
    site.complete(&prompt(1, 3)).await.unwrap();
    site.complete(&prompt(2, 4)).await.unwrap();
    site.until_depth(&prompt(2, 4), 4).await;
    let prompts = [prompt(1, 5), prompt(2, 4), prompt(3, 2)];
    let body = serde_json::json!({ "prompt": prompts });
    let route = site.watch.post(site.front, "/v1/route", &body).await.unwrap();
    assert_eq!((&route["depths"]["1"], &route["blocks"]), (&7.into(), &11.into()), "{route}");
}

#[tokio::test]
async fn several_pools_are_told_apart_by_the_model() {
    let (mut chat, mut code) = (Endpoint::start().await, Endpoint::start().await);
    let dcs = [("chat", chat.port), ("code", code.port)];
    let dcs = dcs.map(|(pool, port)| format!("{},pool={pool}", dc(1, port)));
    let front = Front::start(&dcs, "--model m").await;
    for name in args("chat code chat") {
        let mut client = front.ask(&format!(r#"{{"prompt":[1],"model":"{name}"}}"#)).await;
        let endpoint = if name == "chat" { &mut chat } else { &mut code };
        endpoint.asked().await.answer("200 OK", &name).await;
        assert!(client.rest().await.ends_with(&name));
    }
    for (body, status, code) in [
        (r#"{"prompt":[1]}"#, 400, "missing_model"),
        (r#"{"prompt":[1],"model":"m"}"#, 404, "model_not_found"),
        (r#"{"prompt":[1],"model":"Chat"}"#, 404, "model_not_found"),
    ] {
        let (found, error) = parsed(&front.ask(body).await.rest().await);
        assert_eq!((found, error["error"]["code"].as_str()), (status, Some(code)), "{body}");
        let message = error["error"]["message"].as_str().unwrap();
        assert!(message.contains("`chat`, `code`"), "{message}");
    }
}
