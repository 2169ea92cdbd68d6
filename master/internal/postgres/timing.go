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

	firstPause = 500 * time.Millisecond
	lastPause  = 15 * time.Second
)
