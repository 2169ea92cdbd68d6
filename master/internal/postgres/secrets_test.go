package postgres

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"saltern/master/event"
	"saltern/master/internal/postgres/settings"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
	"saltern/test/logged"
)

// startEcho starts a server that asks for the password in clear, and refuses it with an error that repeats it.
func startEcho(t *testing.T) (port int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.64.1:0")
	check.Must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go echoPassword(conn)
		}
	}()
	return l.Addr().(*net.TCPAddr).Port
}

// echoPassword speaks the protocol of PostgreSQL ("Frontend/Backend Protocol" in its manual).
func echoPassword(conn net.Conn) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	readMessage := func() string {
		var size [4]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return ""
		}
		body := make([]byte, min(binary.BigEndian.Uint32(size[:]), 64<<10)-4)
		if _, err := io.ReadFull(conn, body); err != nil {
			return ""
		}
		return string(body)
	}
	_ = readMessage()
	_, _ = conn.Write([]byte{'R', 0, 0, 0, 8, 0, 0, 0, 3})
	_, _ = io.ReadFull(conn, make([]byte, 1))
	password := strings.TrimSuffix(readMessage(), "\x00")

	var fields []byte
	for _, field := range []string{"SFATAL", "C28P01", "Mno: " + password, "Dit was " + password, "Htry " + password} {
		fields = append(append(fields, field...), 0)
	}
	fields = append(fields, 0)
	answer := binary.BigEndian.AppendUint32([]byte{'E'}, uint32(len(fields)+4))
	_, _ = conn.Write(append(answer, fields...))
}

// TestPasswordIsShownNowhere looks for generated passwords in logs, errors and the status while nothing works.
func TestPasswordIsShownNowhere(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	echo := startEcho(t)
	letters := []rune("abcXYZ0189 '\"\\%@:/?#&=;$`{}[]<>|~!*()_+-.,äß☃\t\x01")
	garbage := filepath.Join(t.TempDir(), "garbage")
	for _, broken := range []string{"refused", "echo", "no such host", "unreadable certificate", "TLS"} {
		t.Run(broken, func(t *testing.T) {
			var odd strings.Builder
			for range random.IntN(200) {
				odd.WriteRune(letters[random.IntN(len(letters))])
			}
			secrets := []string{fmt.Sprintf("%016x", random.Uint64()), fmt.Sprintf("%016x", random.Uint64())}
			password := secrets[0] + odd.String() + secrets[1]
			db := &settings.Settings{
				Host:        "127.0.64.1",
				Port:        echo,
				Database:    "salt",
				User:        "salt",
				Password:    password,
				SSLMode:     "disable",
				EventsSpool: 16,
			}
			switch broken {
			case "refused":
				db.Port = 1
			case "no such host":
				db.Host = "/no/such/folder"
			case "unreadable certificate":
				db.SSLMode = "verify-full"
				db.SSLRootCert = garbage
			case "TLS":
				db.SSLMode = "require"
			}
			seen := everythingShown(t, db)
			for _, secret := range secrets { // its ends, which no log escapes
				if strings.Contains(seen, secret) {
					t.Errorf("seed %d: %q is shown in\n%s", seed, secret, seen)
				}
			}
		})
	}
}

// everythingShown returns the log and the errors of all that uses a database.
func everythingShown(t *testing.T, db *settings.Settings) string {
	t.Helper()
	var lines logged.Buffer
	log := slog.New(slog.NewTextHandler(&lines, &slog.HandlerOptions{Level: slog.LevelDebug}))
	j, err := OpenJournal(t.TempDir(), 16<<20, time.Now, log)
	check.Must(t, err)
	defer j.Close()
	lookups := NewLookups(LookupsConfig{Settings: db, Node: "node1", Now: time.Now, Log: log})
	sink := New(Config{Settings: db, Node: "node1", Journal: j, Lookups: lookups, Now: time.Now, Log: log})
	bus := event.NewBus(time.Now, 0)
	events := NewEvents(EventsConfig{
		Settings: db,
		Dir:      t.TempDir(),
		Master:   "m1",
		Bus:      bus,
		Now:      time.Now,
		Log:      log,
	})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for _, run := range []func(context.Context){sink.Run, events.Run, lookups.Run} {
		running.Go(func() { run(ctx) })
	}
	defer events.Close()
	defer running.Wait()
	defer cancel()

	addMany(t, j, 1, 3)
	check.Must(t, bus.Fire("numbered", value.NewMap()))
	await.That(t, "both say what is wrong", func() bool { return sink.Stats().Error != "" && events.Stats().Error != "" })
	_, _, lookupErr := lookups.Job(t.Context(), jid(1))
	shown := []string{lines.String(), sink.Stats().Error, events.Stats().Error}
	for _, err := range []error{lookupErr, sink.Fault(sink.Stats()), events.Fault(events.Stats())} {
		if err != nil {
			shown = append(shown, err.Error())
		}
	}
	return strings.Join(shown, "\n")
}
