package master_test

import (
	"os"
	"testing"

	"saltern/internal/control"
	"saltern/master/internal/mastertest"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

// awayWithEvents are the options of a master that is to write its events into a database that is away.
const awayWithEvents = "saltern_postgres: {host: 127.0.0.1, port: 1, database: salt, user: salt, sslmode: disable, events: True}\n"

// TestMasterKeepsEventsForPostgres starts a whole master, since events need its bus.
func TestMasterKeepsEventsForPostgres(t *testing.T) {
	t.Parallel()
	r := mastertest.Start(t, awayWithEvents)
	check.Must(t, r.Parts.Bus.Fire("test/one", value.NewMap()))
	await.That(t, "the status counts events that wait", func() bool {
		text, _ := os.ReadFile(r.Path("cache", control.StatusFile))
		s, err := control.ParseStatus(text)
		return err == nil && s.Postgres != nil && s.Postgres.Events != nil && s.Postgres.Events.Waiting >= 1
	})
}
