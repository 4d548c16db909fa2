//! The page for people: what it shows while requests flow.

use std::process::Command;

use crate::fake::{Wire, parsed, request};
use crate::site::{Site, prompt};
use crate::support::{Process, ROUTER, args, http, local, tls};

/// A name that would be a script, were it not escaped.
const NAME: &str = "<script>document.title=1</script>&\"'";

/// The rows of tables: the text of each cell, as a browser would show it.
fn rows(page: &str) -> Vec<Vec<String>> {
    let text = |cell: &str| {
        let after_tag = cell.split_once('>').map_or("", |(_, text)| text);
        let text = after_tag.split('<').next().unwrap_or("");
        text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    };
    let row = |row: &str| row.split("<td").skip(1).map(text).collect();
    page.split("<tr>").skip(1).map(row).collect()
}

/// A router of two lanes, one of which has no relay, in a pool and with a data center of odd names.
async fn router(site: &Site) -> Process {
    let mut line = args(&format!(
        "--listen {} --admin {} --silence-ms 1500 --keepalive-ms 1000",
        local(site.front),
        local(site.router_admin)
    ));
    line.extend(tls(site.folder.path(), "router"));
    let engine = http(site.engines[0].http, "");
    for dc in [
        format!("id=1,relay=https://{},endpoint={engine}", local(site.feed)),
        format!("id={NAME},relay=https://127.0.0.1:1,endpoint=http://127.0.0.1:1,cost=9999"),
    ] {
        line.extend(["--dc".to_owned(), dc]);
    }
    let process = Process::start("router", ROUTER, &line);
    site.until_ready().await;
    process
}

#[tokio::test]
async fn the_status_page_follows_lanes_and_requests() {
    let site = Site::new(1);
    let _engine = site.engines[0].start().await;
    let relay = site.relay("").await;
    let _router = router(&site).await;
    let page = async || {
        let page = site.watch.get(site.router_admin, "/status").await.unwrap();
        (rows(&page), page)
    };
    let lane = |rows: &[Vec<String>], number: usize| rows[1 + number].clone();
    let (before, text) = page().await;
    let head: Vec<_> = text.split("<th>").skip(1).map(|th| th.split('<').next().unwrap()).collect();
    for word in ["lane", "data center", "sequence", "last heard", "resyncs", "depth where sent"] {
        assert!(head.contains(&word), "{head:?}");
    }
    assert!(text.contains("http-equiv=refresh content=2"));
    assert_eq!(lane(&before, 0)[..3], ["0", "1", "Ready"]);

    // Depths of 0, then 5 (three times), as the histogram must say.
    for _ in 0..4 {
        site.complete(&prompt(1, 5)).await.unwrap();
        site.until_depth(&prompt(1, 5), 5).await;
    }
    let (after, text) = page().await;
    let sequence = |rows: &[Vec<String>]| lane(rows, 0)[3].parse::<u64>().unwrap();
    assert!(sequence(&after) > sequence(&before), "{text}");
    assert_eq!(lane(&after, 0)[8], "4", "answered");
    let age =
        |rows: &[Vec<String>]| lane(rows, 0)[4].trim_end_matches(" s").parse::<f64>().unwrap();
    assert!(age(&after) < 2.0, "{text}");
    assert!(text.contains("by depth 4 ") && text.contains("failed 0 "), "{text}");
    let histogram: Vec<_> =
        after.iter().filter(|row| row.len() == 3).map(|row| (&row[0][..], &row[1][..])).collect();
    assert_eq!(histogram, [("0", "1"), ("1", "0"), ("2-3", "0"), ("4-7", "3")]);

    // The other lane: not ready, never heard of, with its name and its error as text.
    let other = lane(&after, 1);
    assert_eq!((&other[1][..], &other[4][..]), (NAME, "never"));
    assert_ne!(other[2], "Ready");
    assert!(other[10].contains("refused"), "{other:?}");
    assert!(!text.contains("<script"), "{text}");

    // A relay that goes and comes back is a resync.
    relay.kill();
    site.watch.until(site.router_admin, "ckf_lane_retired_total", &["dc=\"1\"", "disc"], 1.0).await;
    let (gone, _) = page().await;
    assert_ne!(lane(&gone, 0)[2], "Ready");
    assert_ne!(lane(&gone, 0)[9], "-", "why it was retired");
    let _relay = site.relay("").await;
    site.watch.until(site.router_admin, "ckf_lane_ready", &["dc=\"1\""], 1.0).await;
    let (back, text) = page().await;
    assert_eq!(lane(&back, 0)[2], "Ready");
    let resyncs = |rows: &[Vec<String>]| lane(rows, 0)[5].parse::<u64>().unwrap();
    assert!(resyncs(&back) > resyncs(&after), "{text}");
}

#[tokio::test]
async fn the_status_page_runs_no_script_and_is_not_kept() {
    let site = Site::new(1);
    let _engine = site.engines[0].start().await;
    let _relay = site.relay("").await;
    let _router = router(&site).await;
    let mut wire = Wire::to(site.router_admin).await;
    let query = "/status?<script>alert(1)</script>";
    wire.say(&request("GET", query, "connection: close\r\n", "")).await;
    let answer = wire.rest().await;
    // Nothing of the request is repeated; such a path is no URL, either.
    assert!(!answer.contains("<script"), "{answer}");
    let mut wire = Wire::to(site.router_admin).await;
    wire.say(&request("GET", "/status?x=1", "connection: close\r\n", "")).await;
    let answer = wire.rest().await;
    assert_eq!(parsed(&answer).0, 200);
    assert_eq!(crate::fake::header(&answer, "cache-control"), Some("no-store"));
    let policy = crate::fake::header(&answer, "content-security-policy").unwrap();
    assert!(policy.contains("default-src 'none'") && !policy.contains("script-src"), "{policy}");
    assert_eq!(crate::fake::header(&answer, "content-type"), Some("text/html; charset=utf-8"));
}

/// The page in a browser, where there is one, by the script that anybody can run.
#[test]
fn a_browser_shows_the_page_and_renews_it() {
    if Command::new("chromium").arg("--version").output().is_err() {
        println!("skipped: chromium is missing");
        return;
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/status_check.sh");
    let folder = std::path::Path::new(ROUTER).parent().expect("a folder");
    let check = Command::new(script)
        .env("CKF_BIN", folder)
        .env("CKF_CHECK_PORT", crate::support::row(10).to_string())
        .output()
        .expect("the script starts");
    let text = [check.stdout, check.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(check.status.success() && text.contains("== as it should be"), "{text}");
}
