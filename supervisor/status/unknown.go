package status

import (
	"time"
)

// Unknown returns the document of a node whose supervisor did not answer, with the cause. Its JSON
// form has all fields: lists are empty, and numbers and times are null, because an unknown number
// is not 0.
func Unknown(now time.Time, cause string) Document {
	return Document{
		Schema:   Schema,
		Time:     now,
		Health:   Unasked,
		Exit:     ExitUnknown,
		Nodes:    []Node{},
		Services: []Service{},
		Problems: NewBoard().Update(now, []Finding{{Code: SupervisorSilent, Cause: cause}}),
		Front:    Front{Addresses: []string{}},
	}
}

// unasked is the JSON form of a document that Unknown returns. Its fields override the document's
// fields of the same name.
type unasked struct {
	Document
	Started *time.Time     `json:"started"`
	Minions unknownMinions `json:"minions"`
	Storage unknownStorage `json:"storage"`
	Front   unknownFront   `json:"front"`
}

type unknownMinions struct {
	Accepted  *int `json:"accepted"`
	Pending   *int `json:"pending"`
	Rejected  *int `json:"rejected"`
	Denied    *int `json:"denied"`
	Connected *int `json:"connected"`
}

type unknownStorage struct {
	Kind        string   `json:"kind"`
	Path        string   `json:"path"`
	Total       *uint64  `json:"totalBytes"`
	Free        *uint64  `json:"freeBytes"`
	FreePercent *float64 `json:"freePercent"`
	InodesFree  *float64 `json:"inodesFreePercent"`
}

type unknownFront struct {
	Addresses   []string `json:"addresses"`
	PublishPort *int     `json:"publishPort"`
	RequestPort *int     `json:"requestPort"`
}
