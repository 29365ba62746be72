// SPDX-License-Identifier: Apache-2.0
// One MPI message of any size: bytes in one piece, or runs of rows, for which a datatype is made
// and given back at once (MPI keeps it until the message is done). Datatypes are all that MPI
// itself allocates for a call; tables of runs are read where they lie, some at a time.
#include "comm/comm_mpi.h"

enum { RUNS_AT_ONCE = 256 };

// A type of `bytes` bytes; to be freed.
static ot_status make_large_type(int64_t bytes, MPI_Datatype *type) {
  MPI_Datatype piece;
  OT_TRY_MPI(MPI_Type_contiguous(OT_MPI_LARGEST_PIECE, MPI_BYTE, &piece));
  const int64_t pieces = bytes / OT_MPI_LARGEST_PIECE;
  const int counts[] = {(int)pieces, (int)(bytes % OT_MPI_LARGEST_PIECE)};
  const MPI_Aint places[] = {0, (MPI_Aint)(pieces * OT_MPI_LARGEST_PIECE)};
  const MPI_Datatype types[] = {piece, MPI_BYTE};
  OT_TRY_MPI(MPI_Type_create_struct(2, counts, places, types, type));
  OT_TRY_MPI(MPI_Type_free(&piece));
  return OT_OK;
}

static ot_status make_row_type(int64_t bytes, MPI_Datatype *type) {
  if (bytes > OT_MPI_LARGEST_PIECE) return make_large_type(bytes, type);
  OT_TRY_MPI(MPI_Type_contiguous((int)bytes, MPI_BYTE, type));
  return OT_OK;
}

// type = what `type` names and then what `more` does; `more` is freed.
static ot_status join_types(MPI_Datatype *type, MPI_Datatype more) {
  const int counts[] = {1, 1};
  const MPI_Aint places[] = {0, 0};
  const MPI_Datatype types[] = {*type, more};
  OT_TRY_MPI(MPI_Type_create_struct(2, counts, places, types, type));
  OT_TRY_MPI(MPI_Type_free((MPI_Datatype *)&types[0]));
  OT_TRY_MPI(MPI_Type_free(&more));
  return OT_OK;
}

// The rows of the message's runs, from the beginning of the memory; to be freed.
static ot_status make_rows_type(const ot_mpi_message *m, MPI_Datatype *type) {
  MPI_Datatype row;
  OT_TRY(make_row_type(m->row_bytes, &row));
  *type = MPI_DATATYPE_NULL;
  for (int i = 0; i < m->runs;) {
    int lengths[RUNS_AT_ONCE], places[RUNS_AT_ONCE], some = 0;
    for (; i < m->runs && some < RUNS_AT_ONCE; i++) {
      if (m->run[2 * i + 1] == 0) continue;
      places[some] = m->run[2 * i];
      lengths[some++] = m->run[2 * i + 1];
    }
    MPI_Datatype more;
    OT_TRY_MPI(MPI_Type_indexed(some, lengths, places, row, &more));
    if (*type == MPI_DATATYPE_NULL) {
      *type = more;
    } else {
      OT_TRY(join_types(type, more));
    }
  }
  OT_TRY_MPI(MPI_Type_free(&row));
  return OT_OK;
}

// Where the message begins when it lies in one piece (at `*skip` bytes); else false.
static bool is_one_piece(const ot_mpi_message *m, int64_t *skip) {
  int used = 0;
  *skip = 0;
  for (int i = 0; i < m->runs && m->bytes > 0; i++) {
    if (m->run[2 * i + 1] == 0) continue;
    if (used++ == 0) *skip = m->run[2 * i] * m->row_bytes;
  }
  return used <= 1;
}

ot_status ot_mpi_post_message(const ot_mpi_message *m, bool sends, MPI_Request *request) {
  MPI_Datatype type = MPI_BYTE;
  int64_t skip;
  const bool whole = is_one_piece(m, &skip);
  const bool plain = whole && m->bytes <= OT_MPI_LARGEST_PIECE;
  if (!whole) {
    skip = 0;
    OT_TRY(make_rows_type(m, &type));
  } else if (!plain) {
    OT_TRY(make_large_type(m->bytes, &type));
  }
  if (!plain) OT_TRY_MPI(MPI_Type_commit(&type));
  const int count = plain ? (int)m->bytes : 1;
  if (sends) {
    const char *const from = m->send;
    OT_TRY_MPI(MPI_Isend(from + skip, count, type, m->peer, m->tag, m->comm, request));
  } else {
    char *const into = m->receive;
    OT_TRY_MPI(MPI_Irecv(into + skip, count, type, m->peer, m->tag, m->comm, request));
  }
  if (!plain) OT_TRY_MPI(MPI_Type_free(&type));
  return OT_OK;
}
