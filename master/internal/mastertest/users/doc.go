// Package users tests what users of a master may order, see and keep: jobs, targets, batches,
// log-ins and secrets.
package users
