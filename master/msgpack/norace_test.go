//go:build !race

package msgpack

const raceBuild = false
