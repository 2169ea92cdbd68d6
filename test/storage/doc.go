// Package storage holds the tests of the shared volume on pretend machines
// with real glusterds, each with a real applianced; see test/gluster/lab. They
// need root and the build tag e2e: `make e2e-storage`, and, for the long ones,
// `make e2e-storage-long`.
package storage
