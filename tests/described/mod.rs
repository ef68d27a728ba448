//! Interpreters as they would describe themselves, without one.

use localsplus::internals::{
    BasicSizes, Build, DEBUG_OFFSETS_SIZE, Entry, Row, Runtime, TABLE, checks,
};

/// The interpreter that `row` describes, as it would describe itself.
pub fn described_by(row: &Row) -> Runtime {
    let minor = u32::from(row.minor);
    let mut runtime = Runtime {
        implementation: "cpython".to_owned(),
        version: 0x0300_00F0 | minor << 16,
        free_threaded: row.build == Build::FreeThreaded,
        debug: false,
        trace_refs: row.build == Build::TraceRefs,
        stackref_debug: false,
        basic_sizes: BasicSizes {
            object: 0,
            frame: 0,
            code: 0,
            generator: 0,
            function: 0,
        },
        debug_offsets: None,
    };
    // From the numbers that were measured on real interpreters, not from the row.
    let [object, frame, code, generator, function] = match (row.minor, row.build) {
        (11, Build::Gil) => [16, 120, 184, 152, 136],
        (11, _) => [32, 136, 200, 168, 152],
        (12, Build::Gil) => [16, 120, 192, 144, 144],
        (12, _) => [32, 136, 208, 160, 160],
        (13, Build::Gil) => [16, 136, 200, 144, 144],
        (13, _) => [32, 152, 216, 160, 160],
        (_, Build::Gil) => [16, 152, 208, 152, 152],
        (_, _) => [32, 168, 232, 168, 168],
    };
    runtime.basic_sizes = BasicSizes {
        object,
        frame,
        code,
        generator,
        function,
    };
    if row.minor >= 13 {
        let mut bytes = vec![0; DEBUG_OFFSETS_SIZE];
        put(&mut bytes, 0, u64::from_le_bytes(*b"xdebugpy"));
        put(&mut bytes, 8, runtime.version.into());
        put(&mut bytes, 16, runtime.free_threaded.into());
        runtime.debug_offsets = Some(bytes.into());
        // The fields' positions are compared with the headers in headers.rs.
        for check in checks(row, &runtime) {
            if let Some(position) = check.position {
                let bytes = runtime.debug_offsets.as_mut().expect("just set");
                put(bytes, position, check.expected);
            }
        }
    }
    runtime
}

/// Writes a word of the debug offsets.
pub fn put(bytes: &mut [u8], position: usize, value: u64) {
    bytes[position..position + 8].copy_from_slice(&value.to_le_bytes());
}

/// Every row there is.
pub fn rows() -> impl Iterator<Item = &'static Row> {
    TABLE.iter().map(|Entry { row, .. }| row)
}
