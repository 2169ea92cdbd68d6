package postgres

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"saltern/master/internal/postgres/settings"
)

// RealServer is a server for tests of whole masters, which import this package.
type RealServer struct{ s *server }

// NewRealServer returns a server of this test alone.
func NewRealServer(t testing.TB) RealServer { return RealServer{newOwnServer(t)} }

// Kill kills all processes of the server.
func (r RealServer) Kill() { r.s.kill() }

// Start starts the server again.
func (r RealServer) Start() { r.s.start() }

// Database creates an empty database.
func (r RealServer) Database(t testing.TB) *settings.Settings { return r.s.database(t) }

// Query connects to a database for the test's own questions.
func (r RealServer) Query(t testing.TB, db *settings.Settings) *pgx.Conn { return r.s.query(t, db) }
