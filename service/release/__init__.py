"""Scripts for releases: versions, licenses, the SBOM and the table of platforms. Not part of the package memoryd."""
