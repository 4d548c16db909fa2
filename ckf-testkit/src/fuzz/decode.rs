use ckf_protocol::{Limits, decode as decode_frame, peek_header};

use crate::forge::reseal;

/// Any bytes as a frame, as they are and with the checksums put right: an error, or a message that
/// encodes to the same bytes. With small limits and table sizes as well as the default ones.
pub fn decode(bytes: &[u8]) {
    let mut sealed = bytes.to_vec();
    reseal(&mut sealed);
    let small = Limits::new(256, 3, 5).expect("legal limits").with_bucket_count(9);
    for limits in [Limits::default(), small] {
        for frame in [bytes, &sealed] {
            let header = peek_header(frame, &limits);
            let Ok(message) = decode_frame(frame, &limits) else { continue };
            assert_eq!(message.to_frame().to_bytes(), frame, "{message:?}");
            let header = header.expect("a frame that decodes has a header");
            assert_eq!(header.frame_len(), frame.len());
            assert_eq!(header.kind(), Ok(message.kind()));
            assert_eq!(header.lease(), message.lease());
        }
    }
}
