//go:build !race

package zmtp

const raceBuild = false
