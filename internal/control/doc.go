// Package control is the contract between the master, the supervisor and the tools of a node: the
// files and messages that one of these programs writes and another reads. All programs use these
// types, and decide by codes, never by the words of a text.
//
//	Status      <cachedir>/status.json, written by the master
//	Condition   the file of saltern_conditions, written by the supervisor
//	Record      part of the masters' record of their cluster
//	Master      what a master does for its supervisor, on its control socket
//	Supervisor  what a supervisor does for its master's users, on its admin socket (door)
//
// The methods of Master and Supervisor are rows of tables of package rpc, in methods.go.
//
// Names and types in JSON are those of the files that earlier versions wrote, because an upgrade
// mixes versions. A reader does not trust the writer: this package bounds sizes and numbers, and
// makes text of other programs safe for one line of a terminal or a log. The files in testdata are
// written by the tests of the writing program, and read by the tests of the reading program.
package control
