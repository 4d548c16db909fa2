//! Compiles the `.proto` files of the hosts, without `protoc`. Does nothing without that feature.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    #[cfg(feature = "hosts")]
    {
        let files = ["proto/ckf_feed.proto", "proto/dynamo_kvrelay_v1.proto"];
        let descriptors = protox::compile(files, ["proto"])?;
        tonic_prost_build::configure().bytes(".").compile_fds(descriptors)?;
    }
    Ok(())
}
