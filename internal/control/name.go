package control

import "regexp"

var plainName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)

// PlainName reports whether a node or a cluster may have this name: 1 to 63 letters, digits, dots,
// dashes and underscores, with a letter or a digit at both ends.
func PlainName(name string) bool { return plainName.MatchString(name) }
