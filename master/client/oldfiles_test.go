package client

import (
	"fmt"
	"testing"

	"saltern/master/event"
	"saltern/master/value"
)

// One event names many minions: it is reported to a job if one of them is a minion of the job.
func TestOldFilesOfManyMinions(t *testing.T) {
	for name, row := range map[string]struct {
		data *value.Map
		want string
	}{
		"the first":        {value.NewMap("id", "web1", "minions", []any{"web1", "db1"}), "[web1]"},
		"another":          {value.NewMap("id", "db1", "minions", []any{"db1", "web2"}), "[web2]"},
		"two of the job":   {value.NewMap("id", "web2", "minions", []any{"web2", "web1"}), "[web2]"},
		"none":             {value.NewMap("id", "db1", "minions", []any{"db1"}), "[]"},
		"no list of them":  {value.NewMap("id", "web1"), "[web1]"},
		"something else":   {value.NewMap("id", 7, "minions", []any{nil, 7, "web1"}), "[web1]"},
		"nothing":          {value.NewMap(), "[]"},
		"a list of no use": {value.NewMap("minions", "web1"), "[]"},
	} {
		t.Run(name, func(t *testing.T) {
			heard := []string{}
			c := Client{cfg: Config{OldFiles: func(old OldFiles) { heard = append(heard, old.Minion) }}}
			job := watch{expected: map[string]bool{"web1": true, "web2": true}}
			c.oldFiles([]*watch{{}, &job}, event.Event{Data: row.data})
			if fmt.Sprint(heard) != row.want {
				t.Errorf("heard of %v, want %s", heard, row.want)
			}
		})
	}
}
