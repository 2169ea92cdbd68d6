// Package python keeps packages for the Python that runs beside the masters:
// modules of ext_pillar, renderers, runners, logins.
//
// The truth is on the shared storage: a list, which names every wheel by its
// hash, and the wheels. Each node unpacks them for its own Python into a folder of
// its own disk, a layer, which Python has at the end of its path: no package takes
// the place of one that Salt brings. Nothing is ever built, and nothing of a
// package runs while it is unpacked. A layer is whole or not there; one that the
// packages of now do not give stays until they do.
package python

// Dir is the place of the packages below the shared storage.
const Dir = "etc/python"

// Names in Dir.
const (
	listName  = "packages.json"
	wheelsDir = "wheels"
)

// Bounds of a set of packages.
const (
	maxPackages  = 200
	maxWheel     = 128 << 20 // bytes of one
	maxWheels    = 256 << 20 // bytes of all
	maxUnpacked  = 1 << 30   // bytes of a layer
	maxFiles     = 50_000    // of a layer
	maxList      = 1 << 20
	maxText      = 1 << 20  // of METADATA, WHEEL
	maxRecord    = 16 << 20 // of RECORD
	maxPath      = 512
	maxRequires  = 1000
	maxNameBytes = 100
)
