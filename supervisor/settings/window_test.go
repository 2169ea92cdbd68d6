package settings

import (
	"strings"
	"testing"
	"time"
)

func TestWindow(t *testing.T) {
	const form = "2006-01-02 15:04" // 2026-11-22 is a Sunday
	for name, c := range map[string]struct {
		text, at string
		open     bool
		until    string
	}{
		"before it":             {"Sun 02:00-04:00", "2026-11-22 01:59", false, "2026-11-22 02:00"},
		"when it opens":         {"Sun 02:00-04:00", "2026-11-22 02:00", true, "2026-11-22 04:00"},
		"when it closes":        {"Sun 02:00-04:00", "2026-11-22 04:00", false, "2026-11-29 02:00"},
		"on another day":        {"sun 02:00-04:00", "2026-11-23 03:00", false, "2026-11-29 02:00"},
		"over midnight":         {"Sat 23:00-01:00", "2026-11-22 00:59", true, "2026-11-22 01:00"},
		"of the day it opens":   {"Sat 23:00-01:00", "2026-11-21 00:30", false, "2026-11-21 23:00"},
		"each day":              {"22:30-23:30", "2026-11-25 22:31", true, "2026-11-25 23:30"},
		"days in a row":         {"Mon..Fri 22:00-01:00", "2026-11-27 23:59", true, "2026-11-28 01:00"},
		"not after them":        {"Mon..Fri 22:00-01:00", "2026-11-28 02:00", false, "2026-11-30 22:00"},
		"over the week's end":   {"Sat..Mon 02:00-04:00", "2026-11-23 02:00", true, "2026-11-23 04:00"},
		"some days":             {"Tue,Thu..Fri 03:30-05:00", "2026-11-25 04:00", false, "2026-11-26 03:30"},
		"over the year's end":   {"Thu 23:00-02:00", "2027-01-01 00:30", true, "2027-01-01 02:00"},
		"a clock at 1970":       {"Thu 23:00-02:00", "1970-01-01 00:00", false, "1970-01-01 23:00"},
		"nearly the whole week": {"00:00-23:59", "2026-11-25 23:59", false, "2026-11-26 00:00"},
	} {
		w, err := Upgrade{Window: c.text}.Opens()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}

		at, err := time.Parse(form, c.at)
		if err != nil {
			t.Fatal(err)
		}

		open, until := w.At(at.In(time.FixedZone("somewhere", -7*3600)))
		if got := until.UTC().Format(form); open != c.open || got != c.until {
			t.Errorf("%s: open %v until %s, want %v until %s", name, open, got, c.open, c.until)
		}
	}

	if open, until := (Window{}).At(time.Unix(1e9, 0)); open || !until.IsZero() {
		t.Errorf("no window: %v %s", open, until)
	}
}

func TestUpgradeFaults(t *testing.T) {
	const url = "url: 'https://files.example.net/{flavour}'"
	for text, want := range map[string]string{
		url + ", window: 'Sun 02:00-04:00', delay: 72h":    "",
		url + ", window: '02:00-02:30'":                    "",
		"window: 'Sun 02:00-04:00'":                        "upgrade.window: needs upgrade.url",
		url + ", window: Sunday":                           `upgrade.window: "Sunday" is not a window: [DAYS] HH:MM-HH:MM in UTC`,
		url + ", window: 'Sun 2:00-04:00'":                 "is not a window",
		url + ", window: 'Sun 02:00-24:00'":                "is not a window",
		url + ", window: 'Son 02:00-04:00'":                `"Son" is no day`,
		url + ", window: 'Mon.. 02:00-04:00'":              `"Mon.." is no day`,
		url + ", window: 'Mon,,Tue 02:00-04:00'":           `"" is no day`,
		url + ", window: '02:00-02:29'":                    "is open for 29m0s: the nodes restart one after another, and each takes some minutes; give it 30m0s or more",
		url + ", window: '02:00-02:00'":                    "is open for 0s",
		url + ", window: '02:00-04:00', delay: 3000h":      "upgrade.delay: 3000h0m0s is not between 0 and 2160h (90 days)",
		url + ", window: '02:00-04:00', delay: -1h":        "upgrade.delay: -1h0m0s is not",
		url + ", delay: 24h":                               "upgrade.delay: is for an upgrade.window",
		"url: http://files.example.net/v, window: '02-04'": "upgrade.url: ",
		url + ", window: [Sun]":                            "cannot unmarshal",
	} {
		_, err := Parse([]byte("upgrade: {"+text+"}"), "f", "n1")
		if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
