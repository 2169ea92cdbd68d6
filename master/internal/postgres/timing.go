package postgres

import "time"

const (
	connectTimeout = 10 * time.Second
	// lockTimeout bounds the wait for a lock in the database, statementTimeout one statement.
	lockTimeout      = 20 * time.Second
	statementTimeout = 2 * time.Minute
	// batchTimeout bounds a transaction, also if the database does not answer any more.
	batchTimeout = statementTimeout + lockTimeout
	// migrateTimeout bounds the migration, which may have to index the rows of Salt's tables.
	migrateTimeout = 30 * time.Minute

	// takeOver is how old a return of another master must be before this one asks whether the
	// database has it. It is longer than a batch of a healthy database takes.
	takeOver = time.Minute
	// takeOverParts is how many parts of takeOver a lane waits longer, so that it reads more returns at once.
	takeOverParts = 12
	// gather is how long records wait for others, so that they share a transaction.
	gather = 200 * time.Millisecond

	// maxConnection bounds the age of a connection. A server cannot vacuum the temporary tables of a session, so that an
	// old session holds back the oldest transaction of all its databases. idleConnection is how long a lane keeps a
	// connection that it does not use.
	maxConnection  = time.Hour
	idleConnection = time.Minute

	// lookupTimeout bounds a look-up; see newLookupTimes.
	lookupTimeout = 2 * time.Second
	// askAgain is how long look-ups are answered without the database after it did not answer.
	askAgain = 10 * time.Second
	// logAgain is how long a failure of look-ups must be over before the log tells of it again.
	logAgain = 10 * time.Minute

	firstPause = 500 * time.Millisecond
	lastPause  = 15 * time.Second
)

// lookupTimes are the times that a look-up may take.
type lookupTimes struct{ whole, turn, statement time.Duration }

// newLookupTimes divides the time of a look-up: a part for its wait for a connection, and more of the rest than the
// server has for a statement, so that a statement that takes long is told from a server that does not answer.
func newLookupTimes(whole time.Duration) lookupTimes {
	return lookupTimes{whole: whole, turn: whole / 4, statement: whole * 5 / 8}
}
