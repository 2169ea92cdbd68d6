package conf

import (
	"log/slog"
	"slices"

	"saltern/master/internal/postgres/settings"
)

// postgres reads saltern_postgres, and adds a note if it cannot be obeyed.
func (a *assembly) postgres(m *Master) {
	var err error
	if m.Postgres, err = settings.Parse(m.PostgresOption); err != nil {
		a.remark(slog.LevelError, "saltern_postgres", "%v: nothing is written to the database", err)
	}
	if m.Postgres != nil && m.Postgres.Events && slices.Contains(m.EventReturn, "pgjsonb") {
		a.remark(slog.LevelWarn, "event_return", "pgjsonb writes each event once more than saltern_postgres with events does, "+
			"if it is the same database: use one of the two")
	}
}
