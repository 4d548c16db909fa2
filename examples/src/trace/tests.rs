//! Every format, every compression, every kind of bad line.

use std::collections::HashSet;
use std::fs;
use std::io::Write;
use std::path::PathBuf;

use tempfile::TempDir;

use super::*;

const ROW: &str =
    r#"{"timestamp": 5, "input_length": 1000, "output_length": 3, "hash_ids": [7, 8]}"#;

struct Scratch(TempDir);

impl Scratch {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary folder"))
    }

    fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, content).expect("write a temporary file");
        path
    }
}

fn read(path: &Path) -> Result<Vec<Request>, TraceError> {
    Trace::open(path, 1)?.collect()
}

fn read_text(content: impl AsRef<[u8]>) -> Result<Vec<Request>, TraceError> {
    let scratch = Scratch::new();
    read(&scratch.file("t.jsonl", content))
}

/// Asserts that line `line` is blamed and the reason names `word`.
fn assert_bad(content: impl AsRef<[u8]>, line: u64, word: &str) {
    let error = read_text(content).expect_err("a bad trace").to_string();
    let expected = format!("t.jsonl:{line}: ");
    let (_, reason) = error.split_once(&expected).unwrap_or_else(|| panic!("{error}"));
    assert!(reason.contains(word), "{error}");
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(content).expect("write to memory");
    encoder.finish().expect("write to memory")
}

fn zstd(content: &[u8]) -> Vec<u8> {
    zstd::encode_all(content, 3).expect("write to memory")
}

#[test]
fn mooncake_times_are_milliseconds_and_bailian_seconds() {
    let mooncake = read_text(ROW).expect("a good row");
    let bailian = r#"{"chat_id": 1, "parent_chat_id": -1, "timestamp": 61.5, "input_length": 20,
        "output_length": 3, "type": "text", "turn": 1, "hash_ids": [7, 8]}"#
        .replace('\n', "");
    let bailian = read_text(bailian).expect("a good row");
    assert_eq!((mooncake[0].at, bailian[0].at), (5, 61_500));
    assert_eq!(mooncake[0].blocks, bailian[0].blocks);
    assert_eq!(mooncake[0].blocks.len(), 2);
}

#[test]
fn equal_ids_after_equal_prefixes_are_equal_blocks_and_no_others() {
    let line = |ids: &str| format!("{{\"timestamp\":0,\"input_length\":1,\"hash_ids\":{ids}}}\n");
    let text = [line("[1,2,3]"), line("[1,2,4]"), line("[9,2,3]"), line("[]")].concat();
    let r = read_text(text).expect("good rows");
    assert_eq!(r[0].blocks[..2], r[1].blocks[..2]);
    assert_ne!(r[0].blocks[2], r[1].blocks[2]);
    assert!((0..3).all(|i| r[0].blocks[i] != r[2].blocks[i]));
    assert!(r[3].blocks.is_empty());
}

#[test]
fn f03_every_u64_is_a_legal_id() {
    let text = format!(
        "{{\"timestamp\":0,\"input_length\":1,\"hash_ids\":[0,100,{},{}]}}",
        1_u64 << 63,
        u64::MAX
    );
    let requests = read_text(text).expect("legal ids");
    let distinct: HashSet<_> = requests[0].blocks.iter().collect();
    assert_eq!(distinct.len(), 4);
}

#[test]
fn plain_gzip_and_zstandard_read_the_same_whatever_the_name() {
    let text = format!("{ROW}\n{ROW}\n");
    let plain = read_text(&text).expect("plain");
    assert_eq!(plain.len(), 2);
    assert_eq!(read_text(gzip(text.as_bytes())).expect("gzip"), plain);
    assert_eq!(read_text(zstd(text.as_bytes())).expect("zstd"), plain);
    // Several members and several frames are one stream.
    let (gz, zs) = (gzip(ROW.as_bytes()), zstd(format!("{ROW}\n").as_bytes()));
    let newline = gzip(b"\n");
    assert_eq!(read_text([&gz[..], &newline, &gz].concat()).expect("members"), plain);
    assert_eq!(read_text([&zs[..], &zs].concat()).expect("frames"), plain);
}

#[test]
fn blank_lines_crlf_and_byte_order_mark_are_accepted_and_counted() {
    let text = format!("\u{FEFF}\r\n{ROW}\r\n\n  \t\n{ROW}\r\n");
    assert_eq!(read_text(&text).expect("good").len(), 2);
    let text = format!("\u{FEFF}{ROW}\r\n\r\n\r\nnonsense\r\n");
    assert_bad(text, 4, "not a JSON object");
}

#[test]
fn a_bad_row_is_blamed_by_line_and_reason() {
    let cases = [
        ("nonsense", "not a JSON object"),
        ("[1, 2]", "not a JSON object"),
        (r#"{"timestamp": 5"#, "EOF"),
        (r#"{"input_length": 1, "hash_ids": []}"#, "`timestamp`"),
        (r#"{"timestamp": 1, "hash_ids": []}"#, "`input_length`"),
        (r#"{"timestamp": 1, "input_length": 1}"#, "`hash_ids`"),
        (r#"{"timestamp": -1, "input_length": 1, "hash_ids": []}"#, "time -1"),
        (r#"{"timestamp": 1e300, "input_length": 1, "hash_ids": []}"#, "time 1"),
        (r#"{"timestamp": 1e999, "input_length": 1, "hash_ids": []}"#, "out of range"),
        (r#"{"timestamp": NaN, "input_length": 1, "hash_ids": []}"#, "expected"),
        (r#"{"timestamp": "1", "input_length": 1, "hash_ids": []}"#, "invalid type"),
        (r#"{"timestamp": 1, "input_length": -4, "hash_ids": []}"#, "-4"),
        (r#"{"timestamp": 1, "input_length": 1.5, "hash_ids": []}"#, "1.5"),
        (r#"{"timestamp": 1, "input_length": 1e18, "hash_ids": []}"#, "invalid type"),
        (r#"{"timestamp": 1, "input_length": 10000000000000000, "hash_ids": []}"#, "above"),
        (r#"{"timestamp": 1, "input_length": 1, "output_length": -2, "hash_ids": []}"#, "-2"),
        (r#"{"timestamp": 1, "input_length": 1, "hash_ids": [1, -1]}"#, "-1"),
        (r#"{"timestamp": 1, "input_length": 1, "hash_ids": [1, "2"]}"#, "invalid type"),
        (r#"{"timestamp": 1, "input_length": 1, "hash_ids": [18446744073709551616]}"#, "invalid"),
        (r#"{"timestamp": 1, "input_length": 1, "hash_ids": {"a": 1}}"#, "invalid type"),
        (r#"{"timestamp": 1, "timestamp": 1, "input_length": 1, "hash_ids": []}"#, "duplicate"),
        (r#"{"timestamp": 1, "input_length": 1, "hash_ids": []} {"#, "trailing"),
    ];
    for (line, word) in cases {
        assert_bad(format!("{ROW}\n\n{line}\n{ROW}\n"), 3, word);
    }
    assert_bad("{}", 1, "no known trace format");
    assert_bad("{\"a\": 1}", 1, "no known trace format");
    assert_bad([ROW.as_bytes(), b"\n\xFF\xFE{}"].concat(), 2, "not UTF-8");
    assert_bad([&[0_u8; 4096][..]].concat(), 1, "not a JSON object");
}

#[test]
fn nothing_follows_an_error() {
    let scratch = Scratch::new();
    let path = scratch.file("t.jsonl", format!("{ROW}\nnonsense\n{ROW}\n"));
    let mut trace = Trace::open(&path, 1).expect("exists");
    assert!(matches!(trace.next(), Some(Ok(_))));
    assert!(matches!(trace.next(), Some(Err(TraceError::Line { line: 2, .. }))));
    assert!(trace.next().is_none());
}

#[test]
fn truncated_compression_is_an_error_after_the_good_lines() {
    let text = format!("{ROW}\n").repeat(3_000);
    for packed in [gzip(text.as_bytes()), zstd(text.as_bytes())] {
        for keep in [packed.len() - 1, packed.len() / 2, 5] {
            let error = read_text(&packed[..keep]).expect_err("cut short").to_string();
            assert!(error.contains("t.jsonl:") && error.contains("cannot read"), "{error}");
        }
    }
}

#[test]
fn files_without_requests_are_errors() {
    let conversation = r#"{"id": "a", "requests": []}"#;
    for content in
        [&b""[..], b"\n\n", &gzip(b""), &zstd(b""), b"\xEF\xBB\xBF", conversation.as_bytes()]
    {
        let error = read_text(content).expect_err("nothing to replay");
        assert!(matches!(error, TraceError::Empty { .. }), "{error}");
    }
}

#[test]
fn missing_files_and_folders_are_errors() {
    let scratch = Scratch::new();
    for path in [scratch.0.path().join("missing"), scratch.0.path().to_owned()] {
        let error = read(&path).expect_err("no file");
        assert!(matches!(error, TraceError::Open { .. }), "{error}");
        assert!(error.to_string().contains(&path.display().to_string()));
    }
}

#[test]
fn a_line_without_end_does_not_fill_the_memory() {
    let scratch = Scratch::new();
    let long = vec![b' '; lines::MAX_LINE as usize + 2];
    let path = scratch.file("t.jsonl.zst", zstd(&long));
    let error = read(&path).expect_err("too long").to_string();
    assert!(error.contains(":1: line is longer than"), "{error}");
    // The longest legal line is read.
    let mut longest = ROW.as_bytes().to_vec();
    longest.resize(lines::MAX_LINE as usize, b' ');
    let path = scratch.file("t.jsonl", [&longest[..], b"\n", ROW.as_bytes()].concat());
    assert_eq!(read(&path).expect("legal").len(), 2);
}

fn conversation(id: &str, requests: &str) -> String {
    format!("{{\"id\":\"{id}\",\"block_size\":64,\"requests\":[{requests}]}}\n")
}

#[test]
fn conversations_keep_their_ids_apart_and_their_order() {
    let turns = r#"{"t":0,"type":"n","in":128,"hash_ids":[1,2]},
        {"t":9.5,"type":"n","in":192,"hash_ids":[1,2,3]},
        {"t":4,"type":"subagent","requests":[{"t":1,"hash_ids":[1,4]},{"t":7,"hash_ids":[1,4,5]}]}"#
        .replace('\n', "");
    let text = conversation("a", &turns) + &conversation("b", &turns);
    let requests = read_text(text).expect("good");
    assert_eq!(requests.len(), 8);
    assert!(requests.is_sorted_by_key(|request| request.at));
    let first = requests[0].blocks[0];
    let (a, b): (Vec<_>, Vec<_>) = requests.iter().partition(|r| r.blocks[0] == first);
    for own in [a, b] {
        let after: Vec<_> = own.iter().map(|r| r.at - own[0].at).collect();
        assert_eq!(after, [0, 5_000, 9_500, 11_000]);
        let lengths: Vec<_> = own.iter().map(|r| r.blocks.len()).collect();
        assert_eq!(lengths, [2, 2, 3, 3]);
        assert_eq!(own[0].blocks[..], own[2].blocks[..2], "subagents share the ids");
        assert_eq!(own[1].blocks[..], own[3].blocks[..2]);
    }
}

#[test]
fn few_conversations_run_at_once_and_the_seed_moves_their_starts() {
    let turns: Vec<_> =
        (0..50).map(|t| format!("{{\"t\":{},\"hash_ids\":[0]}}", t * 600)).collect();
    let text: String = (0..60).map(|i| conversation(&i.to_string(), &turns.join(","))).collect();
    let scratch = Scratch::new();
    let path = scratch.file("t.jsonl", text);
    let with_seed = |seed| -> Vec<Request> {
        Trace::open(&path, seed).and_then(Iterator::collect).expect("good")
    };
    let requests = with_seed(1);
    assert_eq!(requests.len(), 60 * 50);
    assert!(requests.is_sorted_by_key(|request| request.at));
    let mut running = std::collections::HashMap::new();
    let mut most = 0;
    for request in &requests {
        let seen = running.entry(request.blocks[0]).or_insert(0);
        *seen += 1;
        if *seen == 50 {
            running.remove(&request.blocks[0]);
        }
        most = most.max(running.len());
    }
    assert_eq!(most, 16);
    assert_eq!(with_seed(1), requests);
    assert_ne!(with_seed(2), requests);
}

#[test]
fn a_bad_conversation_is_blamed_by_line_and_reason() {
    let good = conversation("a", r#"{"t":0,"hash_ids":[1]}"#);
    let cases = [
        (conversation("b", r#"{"t":0}"#), "request 0: missing field `hash_ids`"),
        (conversation("b", r#"{"hash_ids":[1]}"#), "`t`"),
        (conversation("b", r#"{"t":-1,"hash_ids":[1]}"#), "request 0: time -1"),
        (conversation("b", r#"{"t":1e13,"hash_ids":[1]}"#), "time"),
        (conversation("b", r#"{"t":0,"hash_ids":[-1]}"#), "-1"),
        (conversation("b", r#"{"t":0,"in":-1,"hash_ids":[1]}"#), "-1"),
        (conversation("b", r#"{"t":0,"requests":[{"t":0}]}"#), "`hash_ids`"),
        (conversation("b", r#"7"#), "invalid type"),
        (r#"{"requests":[]}"#.to_owned(), "`id`"),
        (r#"{"id":"b"}"#.to_owned(), "`requests`"),
        (r#"{"id":"b","hash_id_scope":"global","requests":[]}"#.to_owned(), "global"),
        (ROW.to_owned(), "`id`"),
    ];
    for (line, word) in cases {
        assert_bad(format!("{good}{line}"), 2, word);
    }
    let deep = "{\"t\":0,\"requests\":[".repeat(10_000);
    assert_bad(format!("{good}{{\"id\":\"b\",\"requests\":[{deep}"), 2, "recursion");
}
