package master_test

import (
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"saltern/internal/control"
	"saltern/master/event"
	"saltern/master/internal/mastertest"
	"saltern/master/internal/spool"
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

// TestMasterKeepsEventsOfItsStop fires events until the bus is closed.
func TestMasterKeepsEventsOfItsStop(t *testing.T) {
	t.Parallel()
	r := mastertest.Start(t, awayWithEvents+"event_return: [absent]\n")
	heard := r.Parts.Bus.Subscribe("test", 100_000, event.Prefix("test/"))
	stopped := make(chan struct{})
	var firing sync.WaitGroup
	firing.Go(func() {
		for {
			select {
			case <-stopped:
				return
			case <-time.After(200 * time.Microsecond):
				_ = r.Parts.Bus.Fire("test/stop", value.NewMap())
			}
		}
	})
	await.That(t, "events", func() bool { return heard.Waiting() > 10 })
	r.Stop()
	close(stopped)
	firing.Wait()

	want := 0
	for range heard.C {
		want++
	}
	for name, dir := range map[string]string{
		"postgresql": r.Path("cache", "postgres", "events"),
		"absent":     r.Path("cache", "returners", "events"),
	} {
		kept, err := spool.Open(spool.Config{Dir: dir, Bytes: 256 << 20})
		check.Must(t, err)
		defer kept.Close()
		reader, err := kept.Reader(name)
		check.Must(t, err)
		records, _, err := reader.Read(100_000, 256<<20)
		check.Must(t, err)
		got := 0
		for _, record := range records {
			if strings.Contains(string(record), "test/stop") {
				got++
			}
		}
		if got != want {
			t.Errorf("%s: %d of %d events", name, got, want)
		}
	}
}
