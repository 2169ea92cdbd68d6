//go:build race

package msgpack

// raceBuild says that the race detector is on, which makes everything bigger.
const raceBuild = true
