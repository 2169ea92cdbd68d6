// Package python keeps packages for the Python that runs beside the masters:
// modules of ext_pillar, renderers, runners, logins.
//
// The shared storage has the list, which names every wheel by its hash, and the wheels. Each node
// unpacks them for its own Python into a folder of its own disk, a layer. Python has the layer at the
// end of its path, so that no package replaces one that Salt brings. Nothing is ever built, and no
// code of a package runs while it is unpacked. A layer appears complete or not at all. If the present
// packages cannot be unpacked, the layer before stays until they can.
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
	maxWheel     = 128 << 20 // bytes of one wheel
	maxWheels    = 256 << 20 // bytes of all wheels together
	maxUnpacked  = 1 << 30   // bytes of a layer
	maxFiles     = 50_000    // of a layer
	maxList      = 1 << 20
	maxText      = 1 << 20  // of METADATA, WHEEL
	maxRecord    = 16 << 20 // of RECORD
	maxPath      = 512
	maxRequires  = 1000
	maxNameBytes = 100
)
