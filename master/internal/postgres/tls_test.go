package postgres

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"saltern/master/internal/postgres/settings"
	"saltern/test/authority"
	"saltern/test/await"
	"saltern/test/check"
	"saltern/test/logged"
)

// useTLS gives the server a certificate for an address, and makes the role "protected" log in with a password.
func (s *server) useTLS(t *testing.T, a *authority.Authority, address string) {
	t.Helper()
	dir := t.TempDir()
	a.Sign(dir, address, time.Now().Add(time.Hour))
	for from, to := range map[string]string{"cert.pem": "server.crt", "key.pem": "server.key"} {
		content, err := os.ReadFile(filepath.Join(dir, from))
		check.Must(t, err)
		s.writeFile(t, to, content)
	}
	rules, err := os.ReadFile(filepath.Join(s.dir, "pg_hba.conf"))
	check.Must(t, err)
	const rule = "hostssl all protected all scram-sha-256\nhost all protected all reject\n"
	s.writeFile(t, "pg_hba.conf", append([]byte(rule), rules...))

	conn, err := s.tryConnect("postgres")
	check.Must(t, err)
	defer conn.Close(context.Background())
	execute(t, conn, "ALTER SYSTEM SET ssl = on")
	execute(t, conn, "SELECT pg_reload_conf()")
}

// writeFile writes a file into the server's folder.
func (s *server) writeFile(t *testing.T, name string, content []byte) {
	t.Helper()
	path := filepath.Join(s.dir, name)
	check.Must(t, os.WriteFile(path, content, 0o600))
	if c := s.as.Credential; c != nil {
		check.Must(t, os.Chown(path, int(c.Uid), int(c.Gid)))
	}
}

// connectOnce connects with settings, and returns what an administrator would read of a failure.
func connectOnce(db settings.Settings) (encrypted bool, failure string) {
	d := &database{settings: &db, node: "node1", statementTimeout: time.Minute, maxAge: time.Hour, readOnly: true, log: discard()}
	defer d.close()
	if err := d.connect(context.Background()); err != nil {
		return false, wordError(err, d.password).Error()
	}
	err := d.conn.QueryRow(context.Background(), "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()").Scan(&encrypted)
	if err != nil {
		return false, err.Error()
	}
	return encrypted, ""
}

// The client checks who the database is, takes the password from a file at each connection, and shows it nowhere.
func TestEncryptedConnections(t *testing.T) {
	s := newOwnServer(t)
	db := *s.database(t)
	conn := s.query(t, &db)
	execute(t, conn, `CREATE ROLE protected LOGIN PASSWORD 'right hunter2''\'; GRANT ALL ON SCHEMA public TO protected`)

	db.SSLMode = "verify-full"
	if _, failure := connectOnce(db); !strings.Contains(failure, "server refused TLS connection") {
		t.Errorf("a server without TLS: %s", failure)
	}

	ours, others := authority.New(t), authority.New(t)
	passwords := filepath.Join(t.TempDir(), "password")
	write := func(password string) { check.Must(t, os.WriteFile(passwords, []byte(password+"\n"), 0o600)) }
	write(`right hunter2'\`)
	db.User = "protected"
	db.PasswordFile = passwords
	db.SSLRootCert = ours.File
	s.useTLS(t, ours, "127.0.63.9")
	await.That(t, "the certificate is that of another host", func() bool {
		_, failure := connectOnce(db)
		return strings.Contains(failure, "host of saltern_postgres has to be a name in the database's certificate")
	})
	db.SSLMode = "verify-ca"
	if encrypted, failure := connectOnce(db); !encrypted {
		t.Errorf("verify-ca of a server of another name: %s", failure)
	}
	db.SSLMode = "verify-full"
	s.useTLS(t, ours, db.Host)
	await.That(t, "verify-full accepts the server", func() bool {
		encrypted, _ := connectOnce(db)
		return encrypted
	})

	for _, tt := range []struct {
		name   string
		change func(*settings.Settings)
		want   string
	}{
		{"another CA", func(s *settings.Settings) { s.SSLRootCert = others.File }, "sslrootcert of saltern_postgres has to be the CA"},
		{"the CAs of the system", func(s *settings.Settings) { s.SSLRootCert = "" }, "sslrootcert of saltern_postgres has to be the CA"},
		{"no CA", func(s *settings.Settings) { s.SSLRootCert = "/nonexistent" }, "/nonexistent"},
		{"no TLS", func(s *settings.Settings) { s.SSLMode = "disable" }, "look at pg_hba.conf"},
		{"no password", func(s *settings.Settings) { s.PasswordFile = "/nonexistent" }, "read the password from /nonexistent"},
		{"another database", func(s *settings.Settings) { s.Database = "none" }, "create the database"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			changed := db
			tt.change(&changed)
			if _, failure := connectOnce(changed); !strings.Contains(failure, tt.want) || strings.Contains(failure, "hunter2") {
				t.Error(failure)
			}
		})
	}

	write("wrong hunter2")
	var log logged.Buffer
	j, err := OpenJournal(t.TempDir(), 16<<20, time.Now, discard())
	check.Must(t, err)
	defer j.Close()
	sink := New(Config{
		Settings: &db,
		Node:     "node1",
		Journal:  j,
		Now:      time.Now,
		Log:      slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	ctx, cancel := context.WithCancel(t.Context())
	var run sync.WaitGroup
	run.Go(func() { sink.Run(ctx) })
	defer run.Wait()
	defer cancel()
	addOf(t, j, 1, "web1", true)
	check.Must(t, j.Sync())
	await.That(t, "the error names the password's file", func() bool { return strings.Contains(sink.Stats().Error, "password_file") })
	seen := fmt.Sprintf("%+v", sink.Stats())
	write(`right hunter2'\`)
	await.That(t, "the new password is used without a restart", func() bool { return sink.Stats().Waiting == 0 })
	if text := seen + log.String(); strings.Contains(text, "hunter2") || !strings.Contains(text, "28P01") {
		t.Errorf("the password is shown, or nothing is: %s", text)
	}
}
