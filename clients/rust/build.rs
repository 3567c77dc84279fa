//! Generates the stubs from `protos/`, without an installed protoc.

use std::{env, error::Error, fs, path::PathBuf};

const FILES: [&str; 3] =
    ["memoryd/v1/memory_service.proto", "memoryd/v1/entry_service.proto", "memoryd/v1/error_reason.proto"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=protos");
    let out = PathBuf::from(env::var("OUT_DIR")?);

    let mut compiler = protox::Compiler::new(["protos"])?;
    compiler.include_imports(true).open_files(FILES)?;
    fs::write(out.join("contract.binpb"), compiler.encode_file_descriptor_set())?;

    // The comments of the protos become the documentation of the stubs.
    compiler.include_source_info(true);
    let mut config = tonic_prost_build::Config::new();
    config.enable_type_names();
    tonic_prost_build::configure()
        .build_server(false)
        .build_transport(false)
        .compile_fds_with_config(compiler.file_descriptor_set(), config)?;
    Ok(())
}
