package jobs

import (
	"sync"
	"testing"
	"time"
)

func TestValid(t *testing.T) {
	for jid, want := range map[string]bool{
		"20261121080509316776":             true,
		"20261121080509316776_1":           true,
		"20261121080509316776_1234567890":  true,
		"20261121080509316776_12345678901": false,
		"20261121080509316776_":            false,
		"20261121080509316776_a":           false,
		"20261121080509316776_../x":        false,
		"2026112108050931677":              false,
		"202611210805093167761":            false,
		" 2026112108050931677":             false,
		"+2026112108050931677":             false,
		"２026112108050931677":              false,
		"req":                              false,
		"":                                 false,
	} {
		if Valid(jid) != want {
			t.Errorf("Valid(%q) = %v", jid, !want)
		}
	}
}

func TestTimes(t *testing.T) {
	at := time.Date(2026, 11, 21, 8, 5, 9, 316776999, time.UTC)
	jid := FromTime(at.In(time.FixedZone("x", -7200)))
	if jid != "20261121080509316776" {
		t.Fatal(jid)
	}

	if got, err := Time(jid + "_77"); err != nil || !got.Equal(at.Truncate(time.Microsecond)) {
		t.Error(got, err)
	}

	for _, bad := range []string{"20261321080509316776", "20261121250509316776", "x"} {
		if _, err := Time(bad); err == nil {
			t.Errorf("%s is a time", bad)
		}
	}

	for jid, want := range map[string]string{
		"20261121080509316776":    "2026, Nov 21 08:05:09.316776",
		"20261121080509316776_12": "2026, Nov 21 08:05:09.316776",
		"20269921080509316776":    "",
		"x":                       "",
	} {
		if got := StartTime(jid); got != want {
			t.Errorf("StartTime(%s) = %q", jid, got)
		}
	}
}

func TestIDsIncrease(t *testing.T) {
	now := time.Date(2026, 11, 21, 23, 59, 59, 999999000, time.UTC)
	back := 0
	ids := NewIDs(func() time.Time { back++; return now.Add(-time.Duration(back) * time.Second) })
	last := ""
	for range 5 {
		jid := ids.New()
		if !Valid(jid) || jid <= last {
			t.Fatalf("%s after %s", jid, last)
		}
		last = jid
	}

	real := NewIDs(time.Now)
	var seen sync.Map
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 1000 {
				if _, twice := seen.LoadOrStore(real.New(), true); twice {
					t.Error("twice")
				}
			}
		})
	}

	wg.Wait()
}
