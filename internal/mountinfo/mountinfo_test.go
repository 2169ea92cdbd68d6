package mountinfo

import (
	"os"
	"slices"
	"testing"
)

func TestParseLine(t *testing.T) {
	for name, c := range map[string]struct {
		line string
		want Mount
		ok   bool
	}{
		"plain": {"22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw,errors=remount-ro\n",
			Mount{"8:1", "/", "rw,relatime", "ext4", "/dev/sda1", "rw,errors=remount-ro"}, true},
		"optional fields": {"50 22 0:44 / /srv rw shared:1 master:2 - fuse.glusterfs n1:/cluster rw",
			Mount{"0:44", "/srv", "rw", "fuse.glusterfs", "n1:/cluster", "rw"}, true},
		"escapes": {`50 22 0:44 /a /a\040b\134040 ro - tmpfs x\011y rw`,
			Mount{"0:44", `/a b\040`, "ro", "tmpfs", "x\ty", "rw"}, true},
		"empty source": {"43 27 0:39 / /m rw,relatime - tmpfs  rw,size=1024k\n",
			Mount{"0:39", "/m", "rw,relatime", "tmpfs", "", "rw,size=1024k"}, true},
		"white space in names": {"43 27 0:39 / /a\u00a0b\r\u2003c rw - tmpfs x\v rw\n",
			Mount{"0:39", "/a\u00a0b\r\u2003c", "rw", "tmpfs", "x\v", "rw"}, true},
		"end in an escape": {`1 2 3:4 / /a\04`, Mount{Device: "3:4", Point: `/a\04`}, true},
		"no separator":     {"1 2 3:4 / /x rw shared:1", Mount{Device: "3:4", Point: "/x", Options: "rw"}, true},
		"cut behind it":    {"1 2 3:4 / /x rw - ext4", Mount{Device: "3:4", Point: "/x", Options: "rw"}, true},
		"no point":         {"1 2 3:4 /", Mount{}, false},
		"empty":            {"\n", Mount{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := ParseLine(c.line)
			if got != c.want || ok != c.ok {
				t.Errorf("%+v %v", got, ok)
			}
		})
	}
}

// TestParseOwnTable: what this kernel writes has a root, and each line is whole.
func TestParseOwnTable(t *testing.T) {
	table, err := os.ReadFile(Self)
	if err != nil {
		t.Fatal(err)
	}

	mounts := slices.Collect(Parse(string(table)))
	if !slices.ContainsFunc(mounts, func(m Mount) bool { return m.Point == "/" }) {
		t.Errorf("no root in %q", table)
	}
	for _, m := range mounts {
		if m.Device == "" || m.Options == "" || m.Type == "" || m.SuperOptions == "" {
			t.Errorf("%+v", m)
		}
	}
}

func FuzzParseLine(f *testing.F) {
	f.Add(`50 22 0:44 /a /a\040b ro shared:1 - tmpfs x rw`)
	f.Add(`1 2 3 4 \\\\ - - -`)
	f.Fuzz(func(t *testing.T, line string) {
		if m, ok := ParseLine(line); !ok && m != (Mount{}) {
			t.Errorf("%+v of a line that is none", m)
		}
	})
}
