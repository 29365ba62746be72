// SPDX-License-Identifier: Apache-2.0
// One MPI message of any size: contiguous bytes, or runs of rows, for which a datatype is created
// and freed at once (MPI keeps it until the message completes). Datatypes are all that MPI
// allocates for a call; tables of runs are read in place, a few at a time.
#include "comm/comm_mpi_message.h"

enum {
  RUNS_AT_ONCE = 256,
  LARGEST_PIECE = 1 << 30,  // bytes; larger messages use a datatype of such blocks
};

ot_status ot_mpi_fail(int code, const char *call) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  return ot_fail(OT_ENVIRONMENT, "MPI: %s (%s)", text, call);
}

// A type of `bytes` bytes; to be freed.
static ot_status make_large_type(int64_t bytes, MPI_Datatype *type) {
  MPI_Datatype piece;
  OT_TRY_MPI(MPI_Type_contiguous(LARGEST_PIECE, MPI_BYTE, &piece));
  const int64_t pieces = bytes / LARGEST_PIECE;
  const int counts[] = {(int)pieces, (int)(bytes % LARGEST_PIECE)};
  const MPI_Aint places[] = {0, (MPI_Aint)(pieces * LARGEST_PIECE)};
  const MPI_Datatype types[] = {piece, MPI_BYTE};
  OT_TRY_MPI(MPI_Type_create_struct(2, counts, places, types, type));
  OT_TRY_MPI(MPI_Type_free(&piece));
  return OT_OK;
}

static ot_status make_row_type(int64_t bytes, MPI_Datatype *type) {
  if (bytes > LARGEST_PIECE) return make_large_type(bytes, type);
  OT_TRY_MPI(MPI_Type_contiguous((int)bytes, MPI_BYTE, type));
  return OT_OK;
}

// type = the data of `type` followed by that of `more`; `more` is freed.
static ot_status join_types(MPI_Datatype *type, MPI_Datatype more) {
  const int counts[] = {1, 1};
  const MPI_Aint places[] = {0, 0};
  const MPI_Datatype types[] = {*type, more};
  OT_TRY_MPI(MPI_Type_create_struct(2, counts, places, types, type));
  OT_TRY_MPI(MPI_Type_free((MPI_Datatype *)&types[0]));
  OT_TRY_MPI(MPI_Type_free(&more));
  return OT_OK;
}

// The rows of the block, relative to the start of the buffer; to be freed.
static ot_status make_rows_type(const ot_comm_block *block, MPI_Datatype *type) {
  MPI_Datatype row;
  OT_TRY(make_row_type(block->row_bytes, &row));
  *type = MPI_DATATYPE_NULL;
  for (int i = 0; i < block->runs;) {
    int lengths[RUNS_AT_ONCE], places[RUNS_AT_ONCE], some = 0;
    for (; i < block->runs && some < RUNS_AT_ONCE; i++) {
      if (block->run[2 * i + 1] == 0) continue;
      places[some] = block->run[2 * i];
      lengths[some++] = block->run[2 * i + 1];
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

// True if the block is contiguous; it then starts at `*skip` bytes.
static bool is_one_piece(const ot_comm_block *block, int64_t *skip) {
  int used = 0;
  *skip = 0;
  for (int i = 0; i < block->runs && block->bytes > 0; i++) {
    if (block->run[2 * i + 1] == 0) continue;
    if (used++ == 0) *skip = block->run[2 * i] * block->row_bytes;
  }
  return used <= 1;
}

ot_status ot_mpi_post_message(const ot_comm_transfer *t, int tag, MPI_Comm comm,
                              MPI_Request *request) {
  const ot_comm_block *const block = &t->block;
  MPI_Datatype type = MPI_BYTE;
  int64_t skip;
  const bool whole = is_one_piece(block, &skip);
  const bool plain = whole && block->bytes <= LARGEST_PIECE;
  if (!whole) {
    skip = 0;
    OT_TRY(make_rows_type(block, &type));
  } else if (!plain) {
    OT_TRY(make_large_type(block->bytes, &type));
  }
  if (!plain) OT_TRY_MPI(MPI_Type_commit(&type));
  const int count = plain ? (int)block->bytes : 1;
  char *const memory = block->memory + skip;
  if (t->sends) {
    OT_TRY_MPI(MPI_Isend(memory, count, type, t->peer, tag, comm, request));
  } else {
    OT_TRY_MPI(MPI_Irecv(memory, count, type, t->peer, tag, comm, request));
  }
  if (!plain) OT_TRY_MPI(MPI_Type_free(&type));
  return OT_OK;
}

ot_status ot_mpi_post_nothing(const ot_comm_transfer *t, int tag, MPI_Comm comm,
                              MPI_Request *request) {
  if (!t->sends || t->block.bytes < 2) return ot_mpi_post_message(t, tag, comm, request);
  OT_TRY_MPI(MPI_Isend(t->block.memory, 1, MPI_BYTE, t->peer, tag, comm, request));
  return OT_OK;
}

// ---- completion ----

static void describe_difference(ot_comm_text *out, const ot_comm_request *request, int member,
                                const char *verb) {
  ot_comm_say(out, "ranks differ in ");
  ot_comm_say_call(out, request);
  ot_comm_say(out, ": rank %d %s ", ot_comm_group_of(request)->ranks[member], verb);
}

static ot_status fail_size(const ot_comm_request *request, const ot_comm_transfer *t,
                           int64_t bytes) {
  const int64_t row = t->block.row_bytes;
  if (row > 0 && bytes % row == 0) {
    const int index = ot_comm_group_of(request)->index;
    return ot_comm_fail_row_mismatch(request, t->peer, index, bytes / row, t->block.rows);
  }
  ot_comm_text out = {.length = 0};
  describe_difference(&out, request, t->peer, "sent");
  ot_comm_say(&out, "%lld bytes where rank %d expects %lld", (long long)bytes, request->end->rank,
              (long long)t->block.bytes);
  return ot_fail(OT_RANKS, "%s", out.text);
}

static ot_status fail_message(const ot_comm_request *request, const ot_comm_transfer *t, int code) {
  int class = MPI_SUCCESS;
  MPI_Error_class(code, &class);
  if (class != MPI_ERR_TRUNCATE) return ot_mpi_fail(code, "a message");
  const bool rows = request->call.kind == OT_COMM_ALL_TO_ALL_V;
  ot_comm_text out = {.length = 0};
  describe_difference(&out, request, t->peer, "sends more than the");
  ot_comm_say(&out, "%lld %s that rank %d expects",
              (long long)(rows ? t->block.rows : t->block.bytes), rows ? "rows" : "bytes",
              request->end->rank);
  return ot_fail(OT_RANKS, "%s", out.text);
}

ot_status ot_mpi_check_message(const ot_comm_request *request, const ot_comm_transfer *t, int code,
                               const MPI_Status *status) {
  if (code != MPI_SUCCESS) return fail_message(request, t, code);
  if (t->sends) return OT_OK;
  MPI_Count bytes = 0;
  OT_TRY_MPI(MPI_Get_elements_x(status, MPI_BYTE, &bytes));
  return bytes == t->block.bytes || bytes == 1 ? OT_OK : fail_size(request, t, (int64_t)bytes);
}
