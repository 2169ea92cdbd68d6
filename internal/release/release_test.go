package release

import (
	"runtime/debug"
	"testing"
)

func TestVersion(t *testing.T) {
	build := func(main, rev, modified string) *debug.BuildInfo {
		i := &debug.BuildInfo{Main: debug.Module{Version: main}}
		if rev != "" {
			i.Settings = []debug.BuildSetting{{Key: "vcs.revision", Value: rev}, {Key: "vcs.modified", Value: modified}}
		}
		return i
	}

	const rev = "3013961aa00112233445566778899aabbccddeef"
	for _, tt := range []struct {
		told string
		info *debug.BuildInfo
		want string
	}{
		{"v1.2.0-3-g3013961", build("(devel)", rev, "false"), "v1.2.0-3-g3013961"},
		{"", build("v1.2.0", rev, "false"), "v1.2.0"},
		{"", build("v0.0.0-20261123061730-3013961aa001", rev, "false"), "3013961aa001"},
		{"", build("v1.2.1-0.20261123061730-3013961aa001+dirty", rev, "true"), "3013961aa001-dirty"},
		{"", build("v0.0.0-20261123061730-3013961aa001", "", ""), "3013961aa001"}, // go install
		{"", build("(devel)", rev, "true"), "3013961aa001-dirty"},
		{"", build("(devel)", "", ""), Unknown},
		{"", nil, Unknown},
	} {
		if got := releaseOf(tt.told, tt.info); got != tt.want {
			t.Errorf("%q %+v: %s, want %s", tt.told, tt.info, got, tt.want)
		}
	}
}
