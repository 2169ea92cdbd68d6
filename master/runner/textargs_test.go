package runner

import (
	"slices"
	"strings"
	"testing"
)

// TestTextParameters: each parameter of a function that Salt does not have is either a name or known to be
// something else, so that a new one is not forgotten.
func TestTextParameters(t *testing.T) {
	others := strings.Fields("acts ask block brief count fields format kill last limit minutes page refused replace result " +
		"revision since test tgt_type type until description ** branch repo role token")
	for _, list := range []map[string]added{addedByMaster, addedByCluster} {
		for fun, one := range list {
			isText := IsText(fun)
			for i, p := range strings.Fields(one.params) {
				name := strings.TrimSuffix(p, "=")
				isOther := slices.Contains(others, name)
				if got := isText(i, ""); got == isOther || isText(-1, name) != got {
					t.Errorf("%s %s: text %v, other %v", fun, name, got, isOther)
				}
			}
			if isText(100, "") || isText(-1, "nosuch") {
				t.Errorf("%s: what is no parameter is a text", fun)
			}
		}
	}
	if IsText("jobs.lookup_jid")(0, "") || IsText("test.arg")(-1, "name") {
		t.Error("arguments of Salt's functions are parsed in another way than Salt's")
	}
}
