package control

import "context"

// JobFiles says which files of a job are to be written in Salt's layout.
type JobFiles struct {
	// JID is the id of the job. It may be "": the loads of all jobs are written, and no returns.
	JID string `json:"jid"`
	// Minions have their returns written. It may be nil: all have.
	Minions []string `json:"minions,omitempty"`
}

// LayOutJob has the master write files of a job that it keeps in segments. The files stay for an hour.
func (c *Client) LayOutJob(ctx context.Context, q JobFiles) error {
	_, err := ask(ctx, &c.rpc, layOutJob, q)
	return err
}
