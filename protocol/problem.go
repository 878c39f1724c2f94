package protocol

// Problem is an answer that is not a success: the body of RFC 9457 and the header
// lines that go with it.
type Problem struct {
	Status int
	Code   string // stable, one of Codes
	Title  string // the same for every problem of that code
	Detail string // a sentence that a person can act on
	Field  string // the header or parameter at fault, or ""

	Position int64  // byte offset of the fault in the body, or -1
	Limit    int64  // the limit that was exceeded, or 0
	Fields   string // extra header lines, each ending in CR LF
}

// CodeInfo is one line of the table of problem codes.
type CodeInfo struct {
	Code    string
	Status  int
	Title   string
	Outcome string // of a write: "applied", "repeat", "refused", "unknown", or "–" when no write gets it
	Retry   int    // seconds for Retry-After, 0 for none
}

// Codes returns every problem code, in the order of docs/errors.md.
func Codes() []CodeInfo { return nil }

// NewProblem makes a problem of a code out of Codes; a code that is not there
// becomes "internal". An empty detail becomes the code's title.
func NewProblem(code, detail string) *Problem { return nil }

// Error makes a Problem usable where an error is wanted.
func (p *Problem) Error() string { return p.Code + ": " + p.Detail }

// AppendJSON appends p as an application/problem+json body.
func (p *Problem) AppendJSON(dst []byte) []byte { return dst }
