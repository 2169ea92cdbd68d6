// Package oci holds tests of the container images and of the compose files in
// examples/compose: podman runs exactly the services that a file has, each in a
// network namespace with the address that the file gives it, and real minions are
// served. It is a module of its own, so that the reader of compose files is no
// dependency of the programs. `make test-oci` runs it, by hand.
package oci
