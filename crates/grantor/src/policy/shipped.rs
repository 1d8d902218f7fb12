//! The policies that come with Tidemill. Each file begins with its manual.

/// Name and script of each.
pub const SHIPPED: &[(&str, &str)] = &[
    ("allow-list", include_str!("../../policies/allow-list.lua")),
    ("deny-list", include_str!("../../policies/deny-list.lua")),
    ("source-authentication", include_str!("../../policies/source-authentication.lua")),
    ("aimd", include_str!("../../policies/aimd.lua")),
    ("as-reputation", include_str!("../../policies/as-reputation.lua")),
    ("web", include_str!("../../policies/web.lua")),
    ("tcp-services", include_str!("../../policies/tcp-services.lua")),
];
