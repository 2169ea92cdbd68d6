package jobs

// HandOver passes a job of this master's files on to the other masters. It is for jobs that Salt's
// own salt-run has written there by itself. Of an unknown job there is nothing to pass on.
func (c *Cluster) HandOver(jid string) {
	if checkJID(jid) != nil {
		return
	}
	c.volume.queueRecords(c.recordsOf(jid)...)
}
