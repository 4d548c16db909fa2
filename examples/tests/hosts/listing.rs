//! A `--sources-file` that changes while the relay runs.

use std::path::Path;
use std::time::Duration;

use crate::site::{Engine, Site};

/// What the file says of one engine.
fn listed(engine: &Engine, worker: u32) -> String {
    let (events, replay) = engine.sockets();
    format!("zmq://127.0.0.1:{events}?worker={worker}&replay={replay}\n")
}

/// Replaces the file in one step, as a careful writer does.
fn write(path: &Path, lines: &[String]) {
    let fresh = path.with_extension("new");
    std::fs::write(&fresh, format!("# engines\n{}", lines.concat())).unwrap();
    std::fs::rename(fresh, path).unwrap();
}

/// Waits until these, and only these, members own so many blocks.
async fn until_members(site: &Site, wanted: &[&str]) {
    let mut found = Vec::new();
    for _ in 0..300 {
        let page = site.watch.get(site.relay_admin, "/debug/pools").await.unwrap_or_default();
        found = page.lines().filter(|line| line.starts_with("member")).map(str::to_owned).collect();
        if found == wanted {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{found:?} instead of {wanted:?}");
}

/// Sources come, go, and change places under one name; a file that is torn, empty, absent or binary
/// changes nothing and is counted.
#[tokio::test]
async fn the_sources_follow_a_changing_file() {
    let site = Site::new(0);
    let (a, b) = (Engine::new(), Engine::new());
    let (process, _other) = (a.start().await, b.start().await);
    let path = site.folder.path().join("sources");
    write(&path, &[listed(&a, 0)]);
    let _relay =
        site.relay(&format!("--diagnosis --sources-file {}", path.to_str().unwrap())).await;
    site.fill(a, 1, 5).await;
    until_members(&site, &["member (0, 0): 5 blocks, Live"]).await;

    write(&path, &[listed(&a, 0), listed(&b, 1)]);
    site.fill(b, 2, 3).await;
    let both = ["member (0, 0): 5 blocks, Live", "member (1, 0): 3 blocks, Live"];
    until_members(&site, &both).await;

    let errors = "ckf_sources_file_errors_total";
    let torn = listed(&a, 0);
    for bad in [
        &torn.as_bytes()[..torn.len() - 3],
        b"",
        b"\xFF\0\xFE\n",
        b"zmq://h:1?pool=absent\n",
        b"zmq://h:1?worker=4\nzmq://h:2?worker=4\n",
    ] {
        let before = site.watch.metric(site.relay_admin, errors, &[]).await;
        std::fs::write(&path, bad).unwrap();
        site.watch.until(site.relay_admin, errors, &[], before + 1.0).await;
    }
    std::fs::remove_file(&path).unwrap();
    let before = site.watch.metric(site.relay_admin, errors, &[]).await;
    site.watch.until(site.relay_admin, errors, &[], before + 1.0).await;
    // Both are followed on as if nothing had happened.
    site.fill(b, 3, 4).await;
    until_members(&site, &["member (0, 0): 5 blocks, Live", "member (1, 0): 7 blocks, Live"]).await;

    write(&path, &[listed(&b, 1)]);
    until_members(&site, &["member (1, 0): 7 blocks, Live"]).await;
    assert_eq!(site.watch.metric(site.relay_admin, "ckf_pool_blocks", &[]).await, 7.0);

    // The name passes to another instance, with what that one holds.
    write(&path, &[listed(&a, 1)]);
    until_members(&site, &["member (1, 0): 5 blocks, Live"]).await;
    // And that instance is replaced by a fresh one at the same address.
    process.kill();
    let _fresh = a.start().await;
    site.fill(a, 4, 2).await;
    until_members(&site, &["member (1, 0): 2 blocks, Live"]).await;
    // Nobody is a list as well.
    write(&path, &[]);
    until_members(&site, &[]).await;
    assert_eq!(site.watch.metric(site.relay_admin, "ckf_pool_blocks", &[]).await, 0.0);
}
