//! Certificates that are wrong, and certificates that are renewed.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ckf_examples::hosts::certs;
use ckf_examples::hosts::dynamo::client::DynamoLink;
use ckf_examples::hosts::listen::{AcceptCounters, Patience, accept_tls};
use ckf_examples::hosts::router::link::Channels;
use ckf_examples::hosts::tls::{Renewed, TlsCounters, TlsFiles};
use rcgen::ExtendedKeyUsagePurpose::{ClientAuth, ServerAuth};
use rcgen::{CertificateParams, KeyPair};
use tokio::net::TcpListener;

use crate::faults::files_in;
use crate::nonsense::refused;
use crate::player::{Player, recording};
use crate::site::Site;
use crate::support::{RELAY, ROUTER, args, certificates, local, tls};

/// Writes an authority of its own, and a relay's and a router's certificates that it signed after
/// `change`.
fn signed(folder: &Path, change: impl Fn(&mut CertificateParams)) {
    use rcgen::{BasicConstraints, IsCa, Issuer};
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = params.self_signed(&key).unwrap();
    std::fs::write(folder.join("ca.pem"), ca.pem()).unwrap();
    let authority = Issuer::new(params, key);
    for name in ["relay", "router"] {
        let key = KeyPair::generate().unwrap();
        let mut params = certs::leaf(name, vec![ServerAuth, ClientAuth]).unwrap();
        change(&mut params);
        let certificate = params.signed_by(&key, &authority).unwrap();
        std::fs::write(folder.join(format!("{name}.pem")), certificate.pem()).unwrap();
        std::fs::write(folder.join(format!("{name}.key")), key.serialize_pem()).unwrap();
    }
}

/// The lines that start a relay and a router with certificates of this folder.
fn programs(site: &Site, folder: &Path) -> [(&'static str, &'static str, Vec<String>); 2] {
    let (listen, admin) = (local(site.feed), local(site.relay_admin));
    let relay = args(&format!("--dc-id 1 --listen {listen} --admin {admin}"));
    let (listen, admin) = (local(site.front), local(site.router_admin));
    let router = args(&format!(
        "--listen {listen} --admin {admin} \
         --dc id=1,relay=https://127.0.0.1:1,endpoint=http://127.0.0.1:1"
    ));
    [
        (RELAY, "relay", [relay, tls(folder, "relay")].concat()),
        (ROUTER, "router", [router, tls(folder, "router")].concat()),
    ]
}

/// Whatever is wrong with a file, both programs say which it is and what is wrong, and do not start.
#[test]
fn what_is_wrong_with_certificates_is_said_by_file_and_cause() {
    let site = Site::new(0);
    let good = site.folder.path();
    let broken = |what: &str| format!("-----BEGIN {what}-----\nAAAA\n-----END {what}-----\n");
    let stranger = certificates();
    for own in ["relay", "router"] {
        let other = if own == "relay" { "router" } else { "relay" };
        let (own_pem, own_key) = (format!("{own}.pem"), format!("{own}.key"));
        // The file that is replaced, what it holds then, and what is said about it.
        let file = |folder: &Path, name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
        let faults = [
            (&own_key, file(good, &format!("{other}.key")), "not the key of the certificate in"),
            (&own_key, file(good, &own_pem), "no items found"),
            (&own_key, broken("PRIVATE KEY"), "failed to parse private key"),
            (&own_pem, file(good, &own_key), "no certificate in it"),
            (&own_pem, broken("CERTIFICATE"), "BadEncoding"),
            (&own_pem, broken("CERTIFICATE").replace("AAAA", "A?AA"), "base64"),
            (&"ca.pem".to_owned(), file(good, &own_pem), "UnknownIssuer"),
            (
                &"ca.pem".to_owned(),
                file(stranger.path(), "ca.pem"),
                "not valid by the authority in",
            ),
            (&"ca.pem".to_owned(), broken("CERTIFICATE"), "BadEncoding"),
        ];
        for (name, content, cause) in faults {
            let folder = tempfile::tempdir().unwrap();
            for copied in ["ca.pem", &own_pem, &own_key] {
                std::fs::copy(good.join(copied), folder.path().join(copied)).unwrap();
            }
            let path = folder.path().join(name);
            std::fs::write(&path, content).unwrap();
            for (program, side, line) in programs(&site, folder.path()) {
                if side == own {
                    let said = refused(program, &line);
                    let named = said.contains(path.to_str().unwrap());
                    assert!(named && said.contains(cause), "{side}, {name}, {cause}: {said}");
                }
            }
        }
    }
}

/// A certificate at the wrong time, or for another purpose.
#[test]
fn certificates_that_do_not_hold_now_or_here_are_refused() {
    let site = Site::new(0);
    let day = Duration::from_secs(86_400);
    let now = SystemTime::now();
    type Change = Box<dyn Fn(&mut CertificateParams)>;
    let changes: [(&str, Change); 3] = [
        ("expired", Box::new(move |params| params.not_after = (now - day / 48).into())),
        ("not valid yet", Box::new(move |params| params.not_before = (now + day).into())),
        (
            "extended key usage",
            Box::new(|params| {
                params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::CodeSigning];
            }),
        ),
    ];
    for (cause, change) in changes {
        let folder = tempfile::tempdir().unwrap();
        signed(folder.path(), change);
        for (program, side, line) in programs(&site, folder.path()) {
            let said = refused(program, &line);
            let path = folder.path().join(format!("{side}.pem"));
            assert!(said.contains(path.to_str().unwrap()), "{side}: {said}");
            assert!(said.contains(cause), "{side} {cause}: {said}");
        }
    }
    // The router's trial certificate is a client's: no relay can be started with it.
    let (_, _, mut line) = programs(&site, site.folder.path())[0].clone();
    for word in &mut line {
        *word = word.replace("/relay.", "/router.");
    }
    let said = refused(RELAY, &line);
    assert!(said.contains("router.pem") && said.contains("extended key usage"), "{said}");
}

/// New files are taken up by relay and router while they run; wrong ones are not.
#[tokio::test]
async fn renewed_certificates_are_taken_up_without_a_restart() {
    let site = Site::new(1);
    let mut relay = site.relay("").await;
    let router = site.router().await;
    let folder = site.folder.path();
    let files = "ckf_tls_files_total";
    // The key comes late, as it may during a change.
    let key = std::fs::read(folder.join("router.key")).unwrap();
    certs::write(folder).unwrap();
    let new_key = std::fs::read(folder.join("router.key")).unwrap();
    std::fs::write(folder.join("router.key"), key).unwrap();
    tokio::time::sleep(Duration::from_millis(2100)).await;
    // The router must connect again: its files are wrong now, so that it keeps the former ones.
    relay.signal("KILL");
    relay.ended(Duration::from_secs(5)).await.unwrap();
    relay = site.relay("").await;
    site.watch.until(site.router_admin, files, &["\"error\""], 1.0).await;
    assert_eq!(site.lane("ckf_lane_ready", "1").await, 0.0);
    std::fs::write(folder.join("router.key"), new_key).unwrap();
    site.watch.until(site.router_admin, files, &["\"renewed\""], 1.0).await;
    site.until_ready().await;
    // The relay runs since before these were written; a router that knows nothing else is served.
    certs::write(folder).unwrap();
    tokio::time::sleep(Duration::from_millis(2100)).await;
    router.kill();
    let _router = site.router().await;
    assert!(site.watch.metric(site.relay_admin, files, &["\"renewed\""]).await >= 1.0);
    drop(relay);
}

/// The same on the way to a Dynamo relay, where a proxy adds the certificates.
#[tokio::test]
async fn renewed_certificates_are_taken_up_on_the_way_to_a_dynamo_relay() {
    let Some(recording) = recording() else { return };
    let folder = certificates();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let (own, theirs) = (files_in(folder.path(), "router"), files_in(folder.path(), "relay"));
    let tls = Renewed::new(&theirs, Arc::default(), TlsFiles::server).unwrap();
    let accepts = Arc::<AcceptCounters>::default();
    let patience = Patience { silence: None, stall: Duration::from_secs(60) };
    let incoming = accept_tls(listener, tls, 8, patience, accepts.clone());
    tokio::spawn(Player::new(recording).server().serve_with_incoming(incoming));
    let counters = Arc::<TlsCounters>::default();
    let keep_alive = Duration::from_secs(5);
    let channels = Channels::new(&url, Some(&own), keep_alive, counters.clone()).unwrap();
    let link = DynamoLink::new(channels, "test".to_owned());
    let handshakes = || (accepts.accepted.get(), accepts.bad_handshakes.get());
    let found = link.discover("meta/llama", 16).await.unwrap();
    assert_eq!((handshakes(), counters.renewed.get()), ((1, 0), 0));
    // Another authority, so that the former files prove nothing to the other side any more.
    certs::write(folder.path()).unwrap();
    tokio::time::sleep(Duration::from_millis(2100)).await;
    assert_eq!(link.discover("meta/llama", 16).await.unwrap(), found);
    assert_eq!((handshakes(), counters.renewed.get()), ((2, 0), 1));
}
