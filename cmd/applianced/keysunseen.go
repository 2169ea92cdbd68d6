package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"saltern/internal/past"
	"saltern/internal/printable"
	"saltern/supervisor/status"
)

// unseenFor selects keys of minions that have sent no master anything for some time.
type unseenFor struct {
	since time.Duration // 0: not selected by time
	never bool          // whether to select minions that have never sent anything
}

// ageValue is the value of a flag such as 30d or 12h.
type ageValue struct{ d *time.Duration }

func (v ageValue) String() string {
	if v.d == nil || *v.d == 0 {
		return ""
	}
	return v.d.String()
}

func (v ageValue) Type() string { return "age" }

func (v ageValue) Set(text string) error {
	d, err := past.Duration(text)
	if err != nil || d < time.Minute {
		return fmt.Errorf(`it takes days or hours such as "30d" or "12h"`)
	}
	*v.d = d
	return nil
}

// checkKnown returns an error if the nodes do not know which minions have sent nothing.
func (u unseenFor) checkKnown(list status.MinionList) error {
	if len(list.Unasked) > 0 {
		return fmt.Errorf("nothing was changed: %s may have heard the minions, and does not answer; next: "+
			"applianced status",
			printable.Clean(strings.Join(slices.Sorted(maps.Keys(list.Unasked)), ", ")))
	}
	if list.Since == nil {
		return fmt.Errorf("nothing was changed: a node keeps no record of when minions were heard; next: " +
			"upgrade all nodes")
	}
	return nil
}

// selectUnseen returns the selected keys of a list, and in unknown how many keys it omitted because
// nothing is known of their minions.
func (u unseenFor) selectUnseen(list []status.Minion, now time.Time) (meant []status.Minion, unknown int) {
	for _, m := range list {
		switch {
		case m.Connected:
		case m.Seen != nil && now.Sub(*m.Seen) >= u.since, m.Seen == nil && u.never:
			meant = append(meant, m)
		case m.Seen == nil:
			unknown++
		}
	}
	return meant, unknown
}

// noteUnknown returns a text about the omitted keys, or "" if unknown is 0. since is when the
// records of the nodes begin.
func (u unseenFor) noteUnknown(unknown int, since time.Time) string {
	if unknown == 0 {
		return ""
	}
	return fmt.Sprintf("%d more keys are left alone: no node has heard their minions since the records "+
		"began, %s; --never-seen takes them as well\n",
		unknown, since.UTC().Format("2006-01-02 15:04 UTC"))
}
