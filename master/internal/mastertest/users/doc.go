// Package users tests what users of a master may do, see and store: jobs, targets, batches, log-ins
// and secrets.
package users
