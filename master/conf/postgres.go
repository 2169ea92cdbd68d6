package conf

import (
	"log/slog"

	"saltern/master/internal/postgres/settings"
)

// postgres reads saltern_postgres, and adds a note if it cannot be obeyed.
func (a *assembly) postgres(m *Master) {
	var err error
	if m.Postgres, err = settings.Parse(m.PostgresOption); err != nil {
		a.remark(slog.LevelError, "saltern_postgres", "%v: nothing is written to the database", err)
	}
}
