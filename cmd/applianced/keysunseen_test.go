package main

import (
	"strings"
	"testing"
	"time"

	"saltern/supervisor/status"
)

func TestUnseenKeys(t *testing.T) {
	now := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	at := func(days int) *time.Time {
		t := now.AddDate(0, 0, -days)
		return &t
	}

	list := []status.Minion{
		{ID: "new", Seen: at(1)},
		{ID: "old", Seen: at(40)},
		{ID: "there", Connected: true, Seen: at(40)},
		{ID: "just", Seen: at(30)},
		{ID: "future", Seen: at(-400)},
		{ID: "unknown"},
		{ID: "named", Connected: true},
	}

	for _, c := range []struct {
		age     string
		never   bool
		want    string
		unknown int
	}{
		{"30d", false, "old just", 1}, {"30d", true, "old just unknown", 0}, {"12h", false, "new old just", 1}, {"365d", false, "", 1}, {"720h", false, "old just", 1},
	} {
		u := unseenFor{never: c.never}
		if err := (ageValue{&u.since}).Set(c.age); err != nil {
			t.Fatal(err)
		}

		meant, unknown := u.selectUnseen(list, now)
		var ids []string
		for _, m := range meant {
			ids = append(ids, m.ID)
		}

		if got := strings.Join(ids, " "); got != c.want || unknown != c.unknown {
			t.Errorf("%s: %q, %d unknown", c.age, got, unknown)
		}

		if note := u.noteUnknown(unknown, now); (note != "") != (unknown > 0) {
			t.Errorf("%s: %s", c.age, note)
		}
	}

	u := unseenFor{since: time.Hour}
	if err := u.checkKnown(status.MinionList{Since: at(3)}); err != nil {
		t.Error(err)
	}

	for want, l := range map[string]status.MinionList{
		"keeps no record":       {},
		"n2, n3 may have heard": {Since: at(3), Unasked: map[string]string{"n3": "x", "n2": "y"}},
	} {
		if err := u.checkKnown(l); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
