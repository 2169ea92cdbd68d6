//go:build race

package zmtp

// raceBuild reports that the race detector is on, which increases memory and time.
const raceBuild = true
