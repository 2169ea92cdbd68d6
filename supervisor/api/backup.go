package api

import (
	"context"
	"net/http"

	"saltern/supervisor/status"
)

// Backups is what the routes of scheduled backups serve:
//
//	GET  /v1/backup   how they are (status.BackupList)
//	POST /v1/backup   this node makes one now
type Backups interface {
	Backups() (status.BackupList, error)
	// MakeBackup begins; it is refused with [ErrState] while this node makes one.
	MakeBackup() error
}

func (s *Server) backupRoutes(mux *http.ServeMux, n Backups) {
	mux.HandleFunc("GET /v1/backup", func(w http.ResponseWriter, _ *http.Request) {
		list, err := n.Backups()
		s.answer(w, list, err)
	})
	mux.HandleFunc("POST /v1/backup",
		func(w http.ResponseWriter, _ *http.Request) { s.answer(w, struct{}{}, n.MakeBackup()) })
}

// Backups tells how the scheduled backups are.
func (c *Client) Backups(ctx context.Context) (list status.BackupList, err error) {
	return list, c.do(ctx, http.MethodGet, "/v1/backup", nil, &list)
}

// MakeBackup has the node make a backup; it returns when that has begun.
func (c *Client) MakeBackup(ctx context.Context) error {
	return c.do(ctx, http.MethodPost, "/v1/backup", nil, nil)
}
