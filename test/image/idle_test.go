//go:build nspawn

package image

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"saltern/test/lab"
)

// TestIdle measures what each part of a cluster of three costs while nothing
// happens, for as long as SALTERN_IDLE says (2m). The nodes end with the test,
// or when the file that SALTERN_HOLD names is gone.
func TestIdle(t *testing.T) {
	span, err := time.ParseDuration(os.Getenv("SALTERN_IDLE"))
	if err != nil {
		t.Skip("by hand: SALTERN_IDLE=2m")
	}

	n := newNetwork(t)
	var all []*machine
	for i := range 3 {
		a := fmt.Sprintf("node: node%d\naddress: %s%d\nsecret: a-secret-for-three-machines-012345\nstorage: {kind: volume}\n",
			41+i, n.base, 41+i)
		if i == 0 {
			a += "mode: form\ncluster_id: blue\n"
		} else {
			a += "mode: join\npeers: [" + all[0].Address + "]\n"
		}

		all = append(all, boot(t, n, 41+i, map[string]string{"etc/saltern/answers.yaml": a}))
	}

	for _, m := range all {
		for _, other := range all {
			m.wait(t, 600*time.Second, other.Name, "sh", "-c", "applianced status | grep -A9 HEALTHY")
		}
	}

	all[0].wait(t, 300*time.Second, "Number of Bricks: 1 x 3 = 3", "gluster", "volume", "info")
	lab.Eventually(t, 600*time.Second, "they come to rest", func() error {
		before := all[0].units(t)
		time.Sleep(20 * time.Second) // a span to measure in
		if used := sum(all[0].units(t)) - sum(before); used > 4*time.Second {
			return fmt.Errorf("%s used %s in 20 s", all[0].Name, used)
		}
		return nil
	})

	var before []map[string]time.Duration
	for _, m := range all {
		before = append(before, m.units(t))
	}

	time.Sleep(span) // what is measured
	for i, m := range all {
		now := m.units(t)
		t.Logf("%s: %.2f %% of a processor", m.Name, 100*float64(sum(now)-sum(before[i]))/float64(span))
		for _, unit := range slices.Sorted(maps.Keys(now)) {
			if used := now[unit] - before[i][unit]; used > 10*time.Millisecond {
				t.Logf("  %-40s %6.3f s a minute", unit, used.Minutes()*60*float64(time.Minute)/float64(span))
			}
		}
	}

	for hold := os.Getenv("SALTERN_HOLD"); hold != ""; time.Sleep(time.Second) {
		if _, err := os.Stat(hold); err != nil {
			break
		}
	}
}

// units is what slices and units of a machine have used since its start.
func (m *machine) units(t testing.TB) map[string]time.Duration {
	t.Helper()
	out := map[string]time.Duration{}
	for _, h := range []string{"unified", "."} {
		dir := filepath.Join("/sys/fs/cgroup", h, m.namespace, "payload") // what is systemd-nspawn's own is left out
		files, _ := filepath.Glob(dir + "/*/*/cpu.stat")                  // the pattern is right
		more, _ := filepath.Glob(dir + "/*/cpu.stat")
		for _, f := range append(files, more...) {
			b, err := os.ReadFile(f)
			if err != nil {
				continue // it ended
			}

			_, rest, _ := strings.Cut(string(b), "usage_usec ")
			text, _, _ := strings.Cut(rest, "\n")
			us, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				continue
			}

			out[strings.TrimPrefix(filepath.Dir(f), dir+"/")] = time.Duration(us) * time.Microsecond
		}
	}

	if len(out) == 0 {
		t.Fatal("the kernel does not tell what control groups use")
	}

	return out
}

// sum is that of the slices.
func sum(units map[string]time.Duration) (all time.Duration) {
	for name, used := range units {
		if !strings.Contains(name, "/") {
			all += used
		}
	}
	return all
}
