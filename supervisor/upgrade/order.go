package upgrade

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"saltern/image/bundle"
)

// errOlder means that a bundle is older than the running version. The signature of an old version
// stays valid after its weaknesses have become known. So an attacker who can offer bundles must not
// be able to install an old version.
var errOlder = errors.New("upgrade: this version is older than the one that runs")

// mayFollow returns an error if a version may not replace the running one: if it was built earlier,
// or at the same time with a lower version number.
func (st *Status) mayFollow(m *bundle.Manifest) error {
	older := func(how, this, runs string) error {
		return fmt.Errorf("%w: %s %s, here runs %s; to go back to a version that is on this machine: applianced upgrade back",
			errOlder, how, this, runs)
	}
	if !st.Created.IsZero() && m.Created.Before(st.Created) {
		return older(m.Version+" was built", m.Created.UTC().Format(time.RFC3339),
			st.Version+" of "+st.Created.UTC().Format(time.RFC3339))
	}
	if (st.Created.IsZero() || m.Created.Equal(st.Created)) && lower(m.Version, st.Version) {
		return older("it is", m.Version, st.Version)
	}
	return nil
}

var (
	numbers = regexp.MustCompile(`^v?([0-9]+(?:\.[0-9]+)*)`)
	hash    = regexp.MustCompile(`^[0-9a-f]{7,40}$`)
)

// commit reports whether a version is the name of a git commit, as in a build without a tag.
func commit(v string) bool {
	v = strings.TrimSuffix(v, "-dirty")
	return hash.MatchString(v) && (len(v) == 7 || strings.ContainsAny(v, "abcdef"))
}

// lower reports whether a has a lower version number than b: 1.9 is lower than 1.10. It returns
// false for versions without numbers, such as commits.
func lower(a, b string) bool {
	if commit(a) || commit(b) {
		return false
	}

	x, y := numbers.FindStringSubmatch(a), numbers.FindStringSubmatch(b)
	if x == nil || y == nil {
		return false
	}

	p, q := strings.Split(x[1], "."), strings.Split(y[1], ".")
	for i := range max(len(p), len(q)) {
		var m, n string // numbers without leading zeros: the longer one is higher
		if i < len(p) {
			m = strings.TrimLeft(p[i], "0")
		}

		if i < len(q) {
			n = strings.TrimLeft(q[i], "0")
		}

		if len(m) != len(n) {
			return len(m) < len(n)
		}
		if m != n {
			return m < n
		}
	}

	return false
}
