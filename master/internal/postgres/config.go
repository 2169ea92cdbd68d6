package postgres

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"saltern/internal/durable"
	"saltern/master/internal/postgres/settings"
)

// maxPassword bounds the file of the password, in bytes.
const maxPassword = 4 << 10

// errFilesHang means that the password or a certificate was not read in time.
var errFilesHang = errors.New("read the files of saltern_postgres: password_file, sslrootcert, sslcert or sslkey does not " +
	"answer: see whether its file system hangs")

// files reads the password and the certificates, on a file system that may hang. Only one goroutine may use it.
type files struct {
	reading chan readSettings // nil: nothing is read
}

// readSettings holds what a reading has found.
type readSettings struct {
	config   *pgx.ConnConfig
	password string
	err      error
}

// read reads the files of settings, and returns errFilesHang when ctx ends first. A reading that hangs in the kernel
// cannot be stopped: it ends when the file system answers, and until then further calls wait for the same one.
func (f *files) read(ctx context.Context, s *settings.Settings) (found readSettings) {
	if len(f.reading) > 0 {
		f.reading = nil // it ended after its caller had gone; the files may have changed since
	}
	if f.reading == nil {
		done := make(chan readSettings, 1)
		f.reading = done
		go func() { done <- readFiles(s) }()
	}

	select {
	case found = <-f.reading:
		f.reading = nil
		return found
	case <-ctx.Done():
		return readSettings{err: errFilesHang}
	}
}

// readFiles reads the password and the certificates. It takes neither from the environment or the home folder.
func readFiles(s *settings.Settings) (found readSettings) {
	found.password = s.Password
	if s.PasswordFile != "" {
		content, _, err := durable.ReadFile(s.PasswordFile, maxPassword, durable.Follow)
		var path *fs.PathError
		if errors.As(err, &path) {
			err = path.Err
		}
		if err != nil {
			found.err = fmt.Errorf("read the password from %s: %w", s.PasswordFile, err)
			return found
		}
		found.password = strings.TrimRight(string(content), "\r\n")
	}

	var text strings.Builder
	escape := strings.NewReplacer(`\`, `\\`, `'`, `\'`)
	for _, p := range [][2]string{
		{"host", s.Host}, {"dbname", s.Database}, {"user", s.User}, {"sslmode", s.SSLMode},
		{"sslrootcert", s.SSLRootCert}, {"sslcert", s.SSLCert}, {"sslkey", s.SSLKey}, {"passfile", "/dev/null"},
	} {
		fmt.Fprintf(&text, "%s='%s' ", p[0], escape.Replace(p[1]))
	}
	fmt.Fprintf(&text, "port=%d", s.Port)
	found.config, found.err = pgx.ParseConfig(text.String())
	if found.err != nil {
		found.err = fmt.Errorf("use the options of saltern_postgres: %w", found.err)
	}
	return found
}

// config returns the configuration of a connection. It waits for files until ctx ends.
func (d *database) config(ctx context.Context) (*pgx.ConnConfig, error) {
	found := d.files.read(ctx, d.settings)
	if found.err != nil {
		return nil, found.err
	}

	d.password = found.password
	config := found.config
	config.Password = d.password
	config.RuntimeParams["application_name"] = "saltern " + d.node
	config.RuntimeParams["client_encoding"] = "UTF8"

	// PgBouncer refuses a connection that begins with parameters like these (ignore_startup_parameters).
	settings := fmt.Sprintf(`SET lock_timeout = %d; SET statement_timeout = %d;
		SET idle_in_transaction_session_timeout = %d`,
		d.lockTimeout.Milliseconds(), d.statementTimeout.Milliseconds(), batchTimeout.Milliseconds())
	if d.readOnly {
		settings += "; SET default_transaction_read_only = on"
	}
	config.AfterConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		_, err := conn.Exec(ctx, settings).ReadAll()
		return err
	}
	return config, nil
}
