// Package oci writes container images as an OCI image layout, the folder that podman, skopeo and
// buildah read: blobs named by their SHA-256, one manifest for each architecture, and an index of
// them. It runs no program and needs no special rights.
//
// The source of the format is the OCI image specification 1.0: image-layout.md, image-index.md,
// manifest.md, config.md, layer.md. The same entries give the same bytes: a layer holds them sorted
// by name, with owners by number, and every time is the time in [Image].
package oci
