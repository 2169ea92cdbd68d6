package postgres

import (
	"context"
	"crypto/x509"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"saltern/internal/printable"
)

// maxError bounds the text of an error, in bytes.
const maxError = 300

// wordError returns what is known of an error and the next step, without secret and without values of rows. Errors of
// the client library hold parts of the connection string, those of the database may quote rows.
func wordError(err error, password string) error {
	text := err.Error()
	var answer *pgconn.PgError
	if errors.As(err, &answer) {
		text = answer.Severity + ": " + answer.Message + " (SQLSTATE " + answer.Code + ")"
		if before, _, found := strings.Cut(err.Error(), answer.Error()); found {
			text = before + text
		}
	}
	if password != "" {
		text = strings.ReplaceAll(text, password, "…")
	}
	text = printable.Brief(text, maxError)
	if step := nextStep(err); step != "" {
		text += ": " + step
	}
	return errors.New(text)
}

// nextStep returns what an administrator can do about an error of a connection, or "".
func nextStep(err error) string {
	var answer *pgconn.PgError
	if errors.As(err, &answer) {
		return map[string]string{
			"28P01": "look at user, password and password_file of saltern_postgres",
			"28000": "look at pg_hba.conf of the database, and at user and sslmode of saltern_postgres",
			"3D000": "create the database, or look at database of saltern_postgres",
			"42501": "grant the role its rights",
		}[answer.Code]
	}

	var authority x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &authority):
		return "sslrootcert of saltern_postgres has to be the CA of the database's certificate"
	case errors.As(err, &name):
		return "host of saltern_postgres has to be a name in the database's certificate"
	case errors.As(err, &invalid):
		return "renew the database's certificate"
	}
	return ""
}

// refusal tells what an error says about the records of a batch.
type refusal int

const (
	// away means that the error says nothing about the records: the database is away, full or busy, or
	// refuses the role.
	away refusal = iota
	// suspect means that the records may be too much for the database: too large or too slow.
	suspect
	// unclear means that the database refuses a record, or everything: a policy of rows and a missing right, for
	// instance, have the same SQLSTATE.
	unclear
	// refused means that the database refuses a record.
	refused
)

// tries returns how often a single record must fail, each time on a connection that works, before it is written
// without its content.
func (r refusal) tries() int {
	switch r {
	case suspect:
		return 4
	case unclear:
		return 2
	}
	return 1
}

// refusalOf returns what an error of a batch says. Classes of SQLSTATE are in the appendix "PostgreSQL Error
// Codes" of its manual.
func refusalOf(err error) refusal {
	var answer *pgconn.PgError
	if !errors.As(err, &answer) || len(answer.Code) != 5 {
		if errors.Is(err, context.DeadlineExceeded) {
			return suspect
		}
		return away
	}

	switch answer.Code {
	case "57014", "53200": // canceled by statement_timeout, out of memory
		return suspect
	}
	switch answer.Code[:2] {
	// Connection, transaction state and login, database, rollback, resources, object state, operator, system, and
	// configuration: none is about a row.
	case "08", "25", "28", "3D", "40", "53", "55", "57", "58", "F0":
		return away
	case "XX": // internal error
		return suspect
	// Cardinality, data, constraint, check option of a view, program limit, and what a trigger raises.
	case "21", "22", "23", "44", "54", "P0":
		return refused
	}
	return unclear
}
